"""The pages that list keys and options name all of them, and none that does not exist."""

import argparse
import ast
import re
from pathlib import Path

import msgspec
import pytest

from policybridge_server.backends.python.backend import EpisodeConfig, PythonSettings
from policybridge_server.backends.python.models import ModelConfig
from policybridge_server.backends.tensors import TensorSettings
from policybridge_server.cli import add_arguments
from policybridge_server.config import ServerConfig
from policybridge_server.mlbridge.grpc.config import ConditionConfig, FeatureConfig, MethodConfig, MlBridgeConfig
from policybridge_server.mlbridge.pipes.config import PipeConfig
from policybridge_server.repository.config import HeadConfig, PolicyConfig
from tests.docs.pages import ROOT

_CONFIGURATION = ROOT / "docs" / "configuration.md"
_POLICY_TOML = ROOT / "docs" / "policy-toml.md"
_SERVER = ROOT / "server" / "policybridge_server"
_SETTINGS = {
    "onnx": ("backends/onnx/backend.py", "OnnxSettings"),
    "torch": ("backends/torch/backend.py", "TorchSettings"),
    "tensorflow": ("backends/tensorflow/backend.py", "TensorflowSettings"),
    "litert": ("backends/litert.py", "LitertSettings"),
}


def tables(page: Path, heading: str) -> list[set[str]]:
    """Give the first columns of the tables under ``heading``, the words in backticks."""
    _, _, rest = page.read_text(encoding="utf-8").partition(f"\n## {heading}\n")
    assert rest, f"{page.name} has no heading {heading!r}"
    section = rest.partition("\n## ")[0]
    found = [re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE) for table in section.split("\n\n")]
    return [set(names) for names in found if names]


def fields(struct: type[msgspec.Struct]) -> set[str]:
    return {field.name for field in msgspec.structs.fields(struct)}


def test_every_key_of_the_server_is_an_option_or_a_table_that_is_described() -> None:
    parser = argparse.ArgumentParser(add_help=False)
    add_arguments(parser)
    options = {option for action in parser._actions for option in action.option_strings}
    without = {name for name in fields(ServerConfig) if f"--{name.replace('_', '-')}" not in options}
    assert without == {"mlbridge"}
    assert "## `[mlbridge]`" in _CONFIGURATION.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("heading", "structs"),
    [("`[[pipe]]`", [PipeConfig]), ("`[mlbridge]`", [MlBridgeConfig, MethodConfig, FeatureConfig, ConditionConfig])],
)
def test_every_key_of_a_table_is_in_the_configuration(heading: str, structs: list[type[msgspec.Struct]]) -> None:
    wanted = [fields(struct) for struct in structs]
    if heading == "`[mlbridge]`":
        # The keys that a service and a method may have as well stand in a table of their own.
        wanted[0] -= fields(MethodConfig)
    assert tables(_CONFIGURATION, heading) == wanted


@pytest.mark.parametrize(("heading", "struct"), [("The keys", PolicyConfig), ("`[head]`", HeadConfig)])
def test_every_key_of_a_policy_is_described(heading: str, struct: type[msgspec.Struct]) -> None:
    assert tables(_POLICY_TOML, heading) == [fields(struct)]


@pytest.mark.parametrize("backend", _SETTINGS)
def test_every_setting_of_a_backend_is_described(backend: str) -> None:
    assert tables(_POLICY_TOML, f"`[settings]` of `{backend}`") == [
        _declared(*_SETTINGS[backend]) | fields(TensorSettings)
    ]


def test_every_setting_of_a_python_policy_is_described() -> None:
    described = tables(_POLICY_TOML, "`[settings]` of `python`")
    assert described == [fields(PythonSettings), fields(ModelConfig), fields(EpisodeConfig)]


def _declared(file: str, name: str) -> set[str]:
    """Give the fields of a class without importing its file, which would load a framework."""
    tree = ast.parse((_SERVER / file).read_text(encoding="utf-8"))
    (kind,) = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name]
    return {
        each.target.id for each in kind.body if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
    }

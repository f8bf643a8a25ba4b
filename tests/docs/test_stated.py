"""The numbers and defaults that pages state are those of the code."""

import subprocess
import sys
from typing import Any, Final

import msgspec
import pytest

from policybridge_server.backends.python.backend import EpisodeConfig, PythonSettings
from policybridge_server.mlbridge.grpc.config import MlBridgeConfig
from policybridge_server.mlbridge.pipes.config import PipeConfig
from policybridge_server.repository.config import HeadConfig, PolicyConfig
from tests.docs.pages import ROOT
from tests.docs.promising import plain

_CONFIGURATION: Final = ROOT / "docs" / "configuration.md"
_POLICY_TOML: Final = ROOT / "docs" / "policy-toml.md"
_SERVER: Final = ROOT / "server" / "policybridge_server"

STATED: Final = [
    ("docs/autotune.md", "Every twelve compiles", "policybridge_train.tuning.module", "_CHECKED_EVERY", 12),
    ("docs/ledger.md", "waiting records may take 256 MiB", "ledger.writer", "_ROOM", 256 << 20),
    ("docs/ledger.md", "adopts abandoned records within a minute", "ledger.postgres.drain", "_ADOPT", 30.0),
    ("docs/ledger.md", "Sessions of a day share a partition", "ledger.postgres.partitions", "_SPAN", 86400.0),
    ("docs/ledger.md", "that server wrote nothing for a day", "ledger.postgres.partitions", "_FORGOTTEN", "1 day"),
    ("docs/ml-compiler-bridge.md", "Requests of 64 KiB and more are", "mlbridge.grpc.decoding", "LARGE", 64 << 10),
    ("docs/ml-compiler-bridge.md", "have 16 MiB of such observations", "mlbridge.grpc.decoding", "_ROOM", 16 << 20),
    ("docs/ml-compiler-bridge.md", "observations (at most 5 s)", "mlbridge.grpc.decoding", "_LONGEST", 5.0),
    ("docs/models.md", "takes less than 2 ms", "engine.pace", "INLINE_SECONDS", 2e-3),
    ("docs/models.md", "are 40 ms late in total", "engine.pace", "_TOLERATED_SECONDS", 0.04),
    ("docs/models.md", "32 times in a row", "engine.pace", "_FIRST_RUNS", 32),
    ("docs/open-inference-protocol.md", "At most 10,000 are live", "open_inference.sequences", "_MOST", 10_000),
    ("docs/operating.md", "Clients are counted by one of 4096 hashes", "workers.table", "_CLIENTS", 4096),
    ("docs/operating.md", "After three failed processes in a row", "workers.parent", "_STARTS", 3),
    ("docs/operating.md", "double from 1 µs to 8.6 s", "telemetry.metrics", "_TIMES", range(10, 34)),
    ("docs/policy-toml.md", "at most 64 KiB", "repository.toml", "LARGEST", 64 << 10),
    ("docs/python-policies.md", "1, 2, 4 … 60 seconds", "backends.process.model", "_MOST_DELAY", 60.0),
    ("docs/scores.md", "95 %, 2,000 draws", "policybridge_train.scoring.statistics", "_SAMPLES", 2000),
    ("docs/versions.md", "The process stays for ten minutes", "engine.rehearsal", "_IDLE", 600.0),
    ("docs/replicas.md", "is asked last for a minute", "policybridge_client.several", "_OUT", 60.0),
]
"""Page, words on it, module, constant, value: tests of the behaviour replace the constant, or take it as it is."""


@pytest.mark.parametrize(("page", "words", "module", "name", "value"), STATED, ids=lambda each: str(each)[:40])
def test_a_number_on_a_page_is_that_of_the_code(page: str, words: str, module: str, name: str, value: object) -> None:
    assert words in plain((ROOT / page).read_text(encoding="utf-8"))
    whole = module if module.startswith("policybridge_") else f"policybridge_server.{module}"
    # In a process of its own: Triton's stubs, which other tests import, have names of ours; protobuf takes each once.
    told = subprocess.run(
        [sys.executable, "-c", f"from {whole} import {name}; print({name}, end='')"],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    assert told.stdout == str(value)


def default_of(struct: type[msgspec.Struct], name: str) -> Any:
    (field,) = [each for each in msgspec.structs.fields(struct) if each.name == name]
    return field.default if field.default is not msgspec.NODEFAULT else None


@pytest.mark.parametrize(
    ("struct", "keys"),
    [
        (HeadConfig, {"scores", "advice", "type"}),
        (PolicyConfig, {"isolation"}),
        (PythonSettings, {"file", "name"}),
        (EpisodeConfig, {"context"}),
    ],
)
def test_every_default_of_a_policy_toml_is_that_of_the_server(struct: type[msgspec.Struct], keys: set[str]) -> None:
    page = _POLICY_TOML.read_text(encoding="utf-8")
    for key in keys:
        default = default_of(struct, key)
        written = str(default).lower() if isinstance(default, bool) else f'"{default}"'
        assert any(f"`{key}`" in line and _states(line, written) for line in page.splitlines()), (key, default)


def _states(line: str, written: str) -> bool:
    """Whether a row says that a value is the default."""
    return (
        f"(default `{written}`)" in line
        or f"`{written}` (default)" in line
        or f"`{written.strip(chr(34))}` (default)" in line
    )


@pytest.mark.parametrize(
    ("struct", "key", "words"),
    [(PipeConfig, "format", '`"bytes"` (default) or `"json"`'), (MlBridgeConfig, "max_sessions", "(default 4096)")],
)
def test_every_default_in_a_table_of_the_configuration_is_that_of_the_server(
    struct: type[msgspec.Struct], key: str, words: str
) -> None:
    assert any(f"| `{key}` |" in line and words in line for line in _CONFIGURATION.read_text().splitlines())
    assert str(default_of(struct, key)) in words


@pytest.mark.parametrize(
    ("file", "code", "words"),
    [
        ("onnx/backend.py", 'file: str = "model.onnx"', 'The model in the version\'s folder (default `"model.onnx"`)'),
        ("tensors.py", "threads: int = 1", "Threads within one operator (default 1)"),
        ("onnx/backend.py", 'lambda: ["CPUExecutionProvider"]', '(default `["CPUExecutionProvider"]`)'),
        ("tensorflow/backend.py", 'tag: str = "serve"', 'SavedModel (default `"serve"`)'),
        ("litert.py", 'file: str = "model.tflite"', '(default `"model.tflite"`)'),
    ],
)
def test_every_default_of_a_backend_is_that_of_the_code(file: str, code: str, words: str) -> None:
    # Not by import: that would load a framework.
    assert code in (_SERVER / "backends" / file).read_text(encoding="utf-8")
    assert words in _POLICY_TOML.read_text(encoding="utf-8")

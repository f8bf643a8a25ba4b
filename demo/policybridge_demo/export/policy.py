"""Policies in a repository, written as a user would write them."""

import json
from collections.abc import Sequence
from pathlib import Path

from policybridge_demo.export.formats import Format
from policybridge_demo.export.network import Network
from policybridge_serdes import ElementType, TensorSpec


def write_policy(repository: Path, name: str, network: Network, features: Sequence[str], stored: Format) -> None:
    """Add the policy ``name`` with ``network`` as version 1; its input is packed from ``features``.

    Raises:
        ExportError: a required package is not installed.

    """
    write = stored.load()
    toml = (declare_network(network) if stored.declared else "") + pack_toml(features)
    write(network, policy_folder(repository, name, stored.backend, toml))


def policy_folder(repository: Path, name: str, backend: str, toml: str = "") -> Path:
    """Write the ``policy.toml`` of a policy; return the folder of its version 1."""
    folder = repository / name / "1"
    folder.mkdir(parents=True)
    (repository / name / "policy.toml").write_text(f'backend = "{backend}"\n{toml}', encoding="utf-8")
    return folder


def pack_toml(features: Sequence[str]) -> str:
    """Return the settings that pack ``features`` into the network's only input."""
    # A list of strings is the same in JSON and in TOML.
    return f"[settings]\n[settings.pack.observation]\nfeatures = {json.dumps(list(features))}\n"


def declare_network(network: Network) -> str:
    """Return the lines of ``policy.toml`` that declare the network's input and output."""
    width, *_, height = network.sizes
    decision, logits = (ElementType.INT64, (1,)), (ElementType.FLOAT, (height,))
    advice = TensorSpec(network.advice, *(decision if network.decide else logits))
    return declare([TensorSpec("observation", ElementType.FLOAT, (width,))], advice)


def declare(features: Sequence[TensorSpec], advice: TensorSpec) -> str:
    """Return the lines of ``policy.toml`` that declare inputs and output."""
    return f"features = [{', '.join(map(_inline, features))}]\nadvice = {_inline(advice)}\n"


def _inline(spec: TensorSpec) -> str:
    return f'{{name = "{spec.name}", type = "{spec.type.value}", shape = {list(spec.shape)}}}'

"""Exporting the bundled policy ``inliner-imitation``, which is a network, to other frameworks."""

import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from policybridge_demo.export.formats import FORMATS
from policybridge_demo.export.network import Network
from policybridge_demo.export.policy import write_policy
from policybridge_demo.server import policy_server
from policybridge_server.repository import BUNDLED

INLINER: Final = "inliner"
"""The trained policy."""

IMITATION: Final = "inliner-imitation"
"""The network that decides as LLVM does."""

MODEL: Final = BUNDLED / IMITATION / "1" / "model.onnx"


@contextmanager
def exported_server(backend: str) -> Iterator[str]:
    """Serve only the imitation, stored as ``FORMATS[backend]``; otherwise like `policy_server`.

    Raises:
        ExportError: a required package is not installed.
        ServerError: as for `policy_server`.

    """
    with TemporaryDirectory(prefix="policybridge-demo-") as repository:
        export_imitation(backend, Path(repository))
        with policy_server("--repository", repository) as address:
            yield address


def export_imitation(backend: str, repository: Path) -> None:
    """Add the imitation to ``repository``, stored as ``FORMATS[backend]``.

    Raises:
        ExportError: a required package is not installed.

    """
    stored = FORMATS[backend]
    stored.load()
    write_policy(repository, IMITATION, read_imitation(), imitation_features(), stored)


def read_imitation() -> Network:
    """Read the bundled model's weights."""
    # Imported here: only exporting needs the package onnx.
    from policybridge_demo.export.onnx import read_network  # noqa: PLC0415

    return read_network(MODEL)


def imitation_features() -> Sequence[str]:
    """Return the features that the bundled ``policy.toml`` packs, in order."""
    policy = tomllib.loads((BUNDLED / IMITATION / "policy.toml").read_text(encoding="utf-8"))
    features: list[str] = policy["settings"]["pack"]["observation"]["features"]
    return features

"""Exporting the bundled policy ``inliner`` to other frameworks."""

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
MODEL: Final = BUNDLED / INLINER / "1" / "model.onnx"


@contextmanager
def exported_server(backend: str) -> Iterator[str]:
    """Serve only the inliner, stored as ``FORMATS[backend]``; otherwise like `policy_server`.

    Raises:
        ExportError: a required package is not installed.
        ServerError: as for `policy_server`.

    """
    with TemporaryDirectory(prefix="policybridge-demo-") as repository:
        export_inliner(backend, Path(repository))
        with policy_server("--repository", repository) as address:
            yield address


def export_inliner(backend: str, repository: Path) -> None:
    """Add the inliner to ``repository``, stored as ``FORMATS[backend]``.

    Raises:
        ExportError: a required package is not installed.

    """
    stored = FORMATS[backend]
    stored.load()
    write_policy(repository, INLINER, read_inliner(), inliner_features(), stored)


def read_inliner() -> Network:
    """Read the bundled model's weights."""
    # Imported here: only exporting needs the package onnx.
    from policybridge_demo.export.onnx import read_network  # noqa: PLC0415

    return read_network(MODEL)


def inliner_features() -> Sequence[str]:
    """Return the features that the bundled ``policy.toml`` packs, in order."""
    policy = tomllib.loads((BUNDLED / INLINER / "policy.toml").read_text(encoding="utf-8"))
    features: list[str] = policy["settings"]["pack"]["observation"]["features"]
    return features

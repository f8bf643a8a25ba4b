"""Python environments of other servers: one for each, because their requirements conflict; made on first use."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from policybridge_bench.processes import run_tool

RUNTIME: Final = "onnxruntime==1.31.1"
"""The same ONNX Runtime for all servers, so that servers are compared and not runtimes."""


def environment(cache: Path, name: str, requirements: Sequence[str], *options: str) -> Path:
    """Give the folder of the environment ``name``, where pip has installed the ``requirements``.

    Raises:
        PreconditionError: they cannot be installed; the message has the end of pip's output.

    """
    folder = (cache / "envs" / name).absolute()
    stamp, wanted = folder / "installed.txt", "\n".join([*requirements, *options])
    if not stamp.exists() or stamp.read_text() != wanted:
        run_tool([sys.executable, "-m", "venv", "--clear", folder])
        run_tool([folder / "bin" / "pip", "install", "--quiet", *options, *requirements])
        stamp.write_text(wanted)
    return folder


def site_packages(folder: Path) -> Path:
    """Give the folder of an environment's packages."""
    (found,) = (folder / "lib").glob("python3*/site-packages")
    return found

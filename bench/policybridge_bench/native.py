"""The C++ load generator, built on first use."""

import fcntl
import os
import shutil
from functools import cache
from pathlib import Path
from typing import Final

from policybridge_bench.processes import run_tool
from policybridge_core.errors import PreconditionError

SOURCES: Final = Path(__file__).parents[1] / "native"
BUILD: Final = "POLICYBRIDGE_BENCH_BUILD"
"""Environment variable: the build folder, instead of one in the cache."""

_PACKAGES: Final = "cmake ninja-build g++ libgrpc++-dev libprotobuf-dev protobuf-compiler-grpc"
_TOOLS: Final = ("cmake", "ninja", "g++", "protoc", "grpc_cpp_plugin")


@cache
def program(name: str, folder: Path, sources: Path = SOURCES) -> Path:
    """Give the path of a program, built under ``folder`` from ``sources``, a CMake project.

    Raises:
        PreconditionError: the sources or a tool are missing, or the build fails.

    """
    if not sources.is_dir():
        raise PreconditionError("the native programs are built from the source tree; this installation has none")
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if missing:
        raise PreconditionError(f"the native programs need {', '.join(missing)}: apt install {_PACKAGES}")
    build = Path(os.environ.get(BUILD, folder / "native")).absolute() / sources.parent.name
    build.mkdir(parents=True, exist_ok=True)
    with (build / "lock").open("w") as lock:
        # Two runs may share the cache: only one of them builds at a time.
        fcntl.flock(lock, fcntl.LOCK_EX)
        run_tool(["cmake", "-S", sources, "-B", build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release"])
        run_tool(["cmake", "--build", build, "--target", name])
    return build / "bin" / name

"""The C++ programs, the load generator and the echoes, built on first use; and the load generator's files."""

import fcntl
import os
import shutil
from functools import cache
from pathlib import Path
from typing import Final

import msgspec

from policybridge_bench.drive import Command
from policybridge_bench.load import Load
from policybridge_bench.payloads import payload
from policybridge_bench.processes import run_tool
from policybridge_bench.requests import EVALUATE, SESSION, messages, write_messages
from policybridge_core.errors import PreconditionError
from policybridge_serdes import Signature, TensorSpec
from tests.compiler_cache import launchers

SOURCES: Final = Path(__file__).parent / "cpp"
BUILD: Final = "POLICYBRIDGE_BENCH_BUILD"
"""Environment variable: the build folder, instead of one in the cache."""

_PACKAGES: Final = "cmake ninja-build g++ libgrpc++-dev libprotobuf-dev protobuf-compiler-grpc"
_OPTIONS: Final = ("kind", "address", "method", "policy", "file", "seconds", "warm_up", "rate")
_TOOLS: Final = ("cmake", "ninja", "g++", "protoc", "grpc_cpp_plugin")


@cache
def program(name: str, folder: Path) -> Path:
    """Give the path of a program, built under ``folder``.

    Raises:
        PreconditionError: a tool is missing, or the build fails.

    """
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if missing:
        raise PreconditionError(f"the native programs need {', '.join(missing)}: apt install {_PACKAGES}")
    build = Path(os.environ.get(BUILD, folder / "peers")).absolute()
    build.mkdir(parents=True, exist_ok=True)
    with (build / "lock").open("w") as lock:
        # Two runs may share the cache: only one of them builds at a time.
        fcntl.flock(lock, fcntl.LOCK_EX)
        cached = [f"-D{key}={value}" for key, value in launchers().items()]
        run_tool(["cmake", "-S", SOURCES, "-B", build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", *cached])
        run_tool(["cmake", "--build", build, "--target", name])
    return build / "bin" / name


def prepare(cache: Path, folder: Path) -> Command:
    """Build the load generator; give the function that makes its command, with files of messages in ``folder``.

    Raises:
        PreconditionError: as of `program`.

    """
    built = program("policybridge-load", cache)

    def command(load: Load) -> list[str]:
        written = native(load, folder)
        options = ((name.replace("_", "-"), getattr(written, name)) for name in _OPTIONS)
        return [str(built), *(f"--{name}={value}" for name, value in options if value not in ("", None))]

    return command


_NATIVE: Final = {
    "evaluate": ("unary", EVALUATE),
    "evaluate-tensors": ("unary", EVALUATE),
    "echo-unary": ("unary", EVALUATE),
    "echo-stream": ("stream", SESSION),
    "wire": ("socket", ""),
}


def native(load: Load, folder: Path) -> Load:
    """Give the same load for the native client, with a file of its messages."""
    if load.file:
        return load
    file = folder / "-".join(filter(None, (load.kind, load.payload, load.policy, load.serdes)))
    if not file.exists():
        head = session_head(payload(load.payload).signature) if load.kind == "session" else b""
        write_messages(messages(load), file, head)
    kind, method = _NATIVE.get(load.kind, (load.kind, load.method))
    return msgspec.structs.replace(load, kind=kind, method=method, file=str(file))


def session_head(signature: Signature) -> bytes:
    """Give the lines before the messages of a session."""
    specs = [*(("feature", spec) for spec in signature.features.specs), ("advice", signature.advice)]
    return "".join(_line(what, spec) for what, spec in specs).encode()


def _line(what: str, spec: TensorSpec) -> str:
    return f"{what} {spec.name} {spec.type.value} {' '.join(map(str, spec.shape))}\n"

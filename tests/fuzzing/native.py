"""Targets in C++: programs of clients/cpp/fuzzing, which CMake builds with clang and libFuzzer."""

import os
import shutil
import subprocess
from pathlib import Path
from types import MappingProxyType
from typing import Final

from tests.locks import one_at_a_time

_ROOT: Final = Path(__file__).parents[2]
_BUILD: Final = Path(os.environ.get("POLICYBRIDGE_FUZZERS_BUILD", _ROOT / ".cache" / "fuzzers"))
_MAJORS: Final = ("22", "19")
_OPTIONS: Final = ("FUZZERS=ON", "LAUNCHER=OFF", "GRPC=OFF", "ONNX=OFF")

NATIVE: Final = MappingProxyType(
    {"native_form": "form", "native_messages": "messages", "native_socket": "socket", "native_store": "store"}
)
"""The program of each target."""


def missing() -> str | None:
    """Say what is missing to build them; ``None`` where nothing is."""
    tools = [tool for tool in ("cmake", "ninja") if shutil.which(tool) is None]
    if tools:
        return " and ".join(tools)
    return None if _compiler() else "clang 19 or 22 with libFuzzer (Debian: clang-22 and libclang-rt-22-dev)"


def build(name: str) -> Path:
    """Build the program of a target, where a source has changed; give its path.

    Raises:
        RuntimeError: something is missing to build it, or it cannot be built.

    """
    lacking = missing()
    if lacking:
        raise RuntimeError(f"{name} cannot be built: {lacking} is missing")
    major = _compiler()
    clang = [f"-DCMAKE_C_COMPILER=clang-{major}", f"-DCMAKE_CXX_COMPILER=clang++-{major}"]
    options = [f"-DPOLICYBRIDGE_{option}" for option in _OPTIONS]
    program = f"policybridge-fuzz-{NATIVE[name]}"
    with one_at_a_time(_BUILD):
        _run(["cmake", "-S", _ROOT / "clients", "-B", _BUILD, "-G", "Ninja", *clang, *options])
        _run(["cmake", "--build", _BUILD, "--target", program])
    return _BUILD / "bin" / program


def _compiler() -> str | None:
    return next((major for major in _MAJORS if shutil.which(f"clang++-{major}") and _has_fuzzer(major)), None)


def _has_fuzzer(major: str) -> bool:
    words = [f"clang++-{major}", "--print-runtime-dir"]
    folder = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    return any(Path(folder).glob("libclang_rt.fuzzer*.a"))


def _run(command: list[str | Path]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))} failed:\n{done.stdout[-4000:]}{done.stderr[-4000:]}")

"""The library that sends tools through a wrapper which a build starts by their paths; see preload.c."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from importlib.resources import as_file, files
from pathlib import Path
from typing import Final

ANY: Final = "policybridge-wrapper"
"""The wrapper for a tool that POLICYBRIDGE_TOOL names."""

_LIBRARY: Final = "policybridge-preload.so"
_COMPILERS: Final = ("cc", "gcc", "clang")


def preloading(folder: Path, tools: Iterable[str], environment: Mapping[str, str]) -> dict[str, str]:
    """Give the variables that load the library into a build; none, if no compiler here can make it, or name it."""
    library = folder / _LIBRARY
    # The loader would split the path in two there.
    if re.search(r"[\s:]", str(library)):
        return {}
    if not library.exists() and not any(_compile(compiler, library) for compiler in _candidates(tools)):
        return {}
    before = environment.get("LD_PRELOAD", "")
    sanitizer = environment.get("ASAN_OPTIONS", "")
    return {
        "LD_PRELOAD": f"{library}:{before}" if before else str(library),
        "POLICYBRIDGE_WRAPPER": str(folder / ANY),
        # A program of the build's own with an address sanitizer would not start beside another library.
        "ASAN_OPTIONS": f"{sanitizer}:verify_asan_link_order=0" if sanitizer else "verify_asan_link_order=0",
    }


def _candidates(tools: Iterable[str]) -> list[str]:
    clangs = sorted(name for name in tools if name.startswith("clang-"))
    return [path for name in (*_COMPILERS, *clangs) if (path := shutil.which(name))]


def _compile(compiler: str, library: Path) -> bool:
    fresh = library.with_name(f"{library.name}.{os.getpid()}.new")
    with as_file(files("policybridge_train.corpus").joinpath("preload.c")) as source:
        command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(fresh), str(source), "-ldl"]
        ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if ended.returncode == 0:
        fresh.replace(library)
    return ended.returncode == 0

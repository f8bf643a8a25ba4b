"""The compilers that there are, and sources that make them ask."""

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

ZIG = [sys.executable, "-m", "ziglang", "cc"]

_DEBIAN = ["clang-19", "clang-22", "opt-19", "opt-22", "llc-19", "llc-22"]


def installed(*names: str) -> list[str]:
    """Give those of Debian's compilers that are here; where they are required, their absence fails the tests."""
    missing = [name for name in names if not shutil.which(name)]
    if missing and os.environ.get("POLICYBRIDGE_REQUIRE_LLVM") == "1":
        raise AssertionError(f"POLICYBRIDGE_REQUIRE_LLVM=1, but there is no {', '.join(missing)}")
    return [name for name in names if name not in missing]


def parameters(*names: str) -> list[object]:
    """Give the compilers as pytest parameters; one that is missing is a skip that says so."""
    here = installed(*names)
    return [name if name in here else pytest.param(name, marks=pytest.mark.skip(f"no {name} here")) for name in names]


DRIVERS = ["ziglang", *parameters("clang-19", "clang-22")]
"""Those that compile C."""


def start(name: str) -> list[str]:
    """Give the words that start a compiler."""
    return ZIG if name == "ziglang" else [name]


def write_source(folder: Path, name: str = "module.c", functions: int = 8) -> Path:
    """Write C whose functions are worth inlining by several degrees: about four decisions for each."""
    stem = name.partition(".")[0]
    lines = ["int sink(int);", "static int tiny(int x) { return x * 3 + 1; }"]
    for n in range(functions):
        lines.append(
            f"static int middle{n}(int x) {{ int s = {n}; for (int i = 0; i < x; i++) s += tiny(i) ^ sink(s); "
            f"if (s > {n}) s = sink(s) + sink(s * {n}) + sink(s - 7); return s; }}"
        )
        lines.append(f"int {stem}{n}(int x) {{ return middle{n}(x) + middle{n}(x + 1) + tiny(x); }}")
    path = folder / name
    path.write_text("\n".join(lines) + "\n")
    return path


def write_pressure(folder: Path) -> Path:
    """Write C with more live values than registers, so that the register allocator evicts."""
    count = 24
    values = "\n".join(f"  long v{n} = sink(x + {n});" for n in range(count))
    uses = " + ".join(f"v{n} * sink(v{(n * 7) % count})" for n in range(count))
    path = folder / "pressure.c"
    path.write_text(f"long sink(long);\nlong f(long x) {{\n{values}\n  return {uses};\n}}\n")
    return path


def write_growing(folder: Path, levels: int = 6) -> Path:
    """Write C that grows by a factor of three for each level where all calls are inlined."""
    lines = ["int sink(int);", "int f0(int x) { return sink(x) ^ sink(x + 1); }"]
    lines += [
        f"int f{n}(int x) {{ return f{n - 1}(x) + f{n - 1}(x + 1) + f{n - 1}(x + 2); }}" for n in range(1, levels)
    ]
    path = folder / "growing.c"
    path.write_text("\n".join(lines) + "\n")
    return path


def left_behind(marker: object) -> Sequence[str]:
    """Give the commands of all running processes that have ``marker`` in them."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(marker) in command:
            found.append(command)
    return found

"""The command of each compiler for one module, as in a build."""

import shlex
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from policybridge_demo.corpus import Module

Command = Callable[[Module, Path], list[str]]
"""Makes the command that compiles a module to an object file (an absolute path); it runs in the corpus' folder."""

# A fixed target, so that the machine's own headers are not read; no debug data, which contains paths; no warnings.
_COMMON = shlex.split("-target x86_64-linux-musl -Oz -g0 -w")

# musl's internal headers must come before its public ones.
_MUSL = shlex.split("""
    -std=c99 -nostdinc -ffreestanding -fno-strict-aliasing -frounding-math -fno-unwind-tables
    -fno-asynchronous-unwind-tables -D_XOPEN_SOURCE=700 -Ilibc/musl/arch/x86_64 -Ilibc/musl/arch/generic
    -Ilibc/musl/src/include -Ilibc/musl/src/internal -Ilibc/musl/include -Ilibc/include/x86_64-linux-musl
    -Ilibc/include/generic-musl
""")

_LIBCXX = shlex.split("""
    -std=c++23 -fvisibility=hidden -fvisibility-inlines-hidden -D_LIBCPP_BUILDING_LIBRARY
    -DLIBCXX_BUILDING_LIBCXXABI -D_LIBCXXABI_BUILDING_LIBRARY -Ilibcxx/src -Ilibcxx/libc -Ilibcxxabi/src
    -Ilibcxxabi/include -Ilibunwind/include
""")

_TSAN = shlex.split("-std=c++17 -fno-exceptions -fno-rtti -fno-builtin -fvisibility=hidden -Ilibtsan")

_UNWIND_C = shlex.split("-std=c11 -fvisibility=hidden -fexceptions -Ilibunwind/include -Ilibunwind/src")

_FLAGS: Mapping[tuple[str, str], list[str]] = {
    ("musl", "c"): _MUSL,
    ("libcxx", "c++"): _LIBCXX,
    ("libcxxabi", "c++"): _LIBCXX,
    ("libunwind", "c++"): _LIBCXX,
    ("libunwind", "c"): _UNWIND_C,
    ("libtsan", "c++"): _TSAN,
}

# The flags that `zig c++` adds: the wheel's libc++ and musl instead of the machine's, and libc++'s configuration.
_ZIG_CXX = shlex.split("""
    -nostdlibinc -nostdinc++ -isystem libcxx/include -isystem libcxxabi/include
    -isystem libc/include/x86_64-linux-musl -isystem libc/include/generic-musl -isystem libc/include/x86-linux-any
    -isystem libc/include/any-linux-any -isystem libunwind/include -DNDEBUG -D_LIBCPP_ABI_VERSION=1
    -D_LIBCPP_ABI_NAMESPACE=__1 -D_LIBCPP_HAS_THREADS=1 -D_LIBCPP_HAS_MONOTONIC_CLOCK -D_LIBCPP_HAS_TERMINAL
    -D_LIBCPP_HAS_MUSL_LIBC=1 -D_LIBCXXABI_DISABLE_VISIBILITY_ANNOTATIONS -D_LIBCPP_DISABLE_VISIBILITY_ANNOTATIONS
    -D_LIBCPP_HAS_VENDOR_AVAILABILITY_ANNOTATIONS=0 -D_LIBCPP_HAS_FILESYSTEM=1 -D_LIBCPP_HAS_RANDOM_DEVICE
    -D_LIBCPP_HAS_LOCALIZATION -D_LIBCPP_HAS_UNICODE -D_LIBCPP_HAS_WIDE_CHARACTERS -D_LIBCPP_HAS_NO_STD_MODULES
    -D_LIBCPP_HAS_TIME_ZONE_DATABASE -D_LIBCPP_PSTL_BACKEND_SERIAL
    -D_LIBCPP_HARDENING_MODE=_LIBCPP_HARDENING_MODE_NONE
    -D_LIBCPP_ASSERTION_SEMANTIC_DEFAULT=_LIBCPP_ASSERTION_SEMANTIC_IGNORE
""")

# zig turns -Oz into -Os, for which LLVM has another rule. zig does not change -Xclang, and the last level wins.
_REAL_OZ = shlex.split("-Xclang -Oz")


def zig(module: Module, output: Path) -> list[str]:
    """Compile with the clang in the ``ziglang`` wheel."""
    driver = [sys.executable, "-m", "ziglang", "cc" if module.language == "c" else "c++"]
    return [*driver, *_arguments(module, output), *_REAL_OZ]


def clang(version: int) -> Command:
    """Give the command for Debian's clang of that version."""

    def command(module: Module, output: Path) -> list[str]:
        if module.language == "c":
            return [f"clang-{version}", *_arguments(module, output)]
        return [f"clang++-{version}", *_arguments(module, output), *_ZIG_CXX]

    return command


def _arguments(module: Module, output: Path) -> list[str]:
    flags = _FLAGS[module.library, module.language]
    return [*_COMMON, *flags, "-c", module.path, "-o", str(output)]


COMPILERS: Mapping[str, Command] = {"zig": zig, "clang-19": clang(19), "clang-22": clang(22)}

"""Which compilers are recognised, and where their flags go."""

import pytest

from policybridge_client.llvm.compilers import CompilerCommand, Kind
from policybridge_core.errors import InvalidError


@pytest.mark.parametrize(
    ("command", "kind", "starts"),
    [
        ("clang -c x.c", Kind.CLANG, 1),
        ("clang++ -c x.cc", Kind.CLANG, 1),
        ("clang-19 -c x.c", Kind.CLANG, 1),
        ("/usr/lib/llvm-22/bin/clang++-22 -c x.c", Kind.CLANG, 1),
        ("aarch64-linux-gnu-clang -c x.c", Kind.CLANG, 1),
        ("ccache clang-19 -c x.c", Kind.CLANG, 2),
        ("distcc ccache clang -c x.c", Kind.CLANG, 3),
        ("opt -Oz x.ll", Kind.OPT, 1),
        ("/opt/llvm/bin/opt-22 -Oz x.ll", Kind.OPT, 1),
        ("llc x.ll", Kind.LLC, 1),
        ("zig cc -c x.c", Kind.ZIG, 2),
        ("/opt/zig/zig c++ -c x.c", Kind.ZIG, 2),
        ("python-zig cc -c x.c", Kind.ZIG, 2),
        ("python3.11 -m ziglang c++ -c x.c", Kind.ZIG, 4),
        ("ccache python3 -m ziglang cc -c x.c", Kind.ZIG, 5),
        ("clang-22 -cc1 -emit-obj x.bc", Kind.CC1, 1),
        ("python3 -m ziglang clang -cc1 -emit-obj x.bc", Kind.CC1, 4),
        ("zig clang -c x.c", Kind.CLANG, 2),
    ],
)
def test_a_compiler_is_known_by_its_name(command: str, kind: Kind, starts: int) -> None:
    compiler = CompilerCommand.of(command.split())
    assert (compiler.kind, len(compiler.start)) == (kind, starts)
    assert [*compiler.start, *compiler.arguments] == command.split()


@pytest.mark.parametrize(
    "command", ["", "clang-format x.c", "clang-tidy-19 x.c", "zig build", "ls -o clang", "-c clang"]
)
def test_anything_else_is_refused_with_what_would_do(command: str) -> None:
    with pytest.raises(InvalidError, match=r"clang.*opt.*zig cc"):
        CompilerCommand.of(command.split())


def test_flags_stand_before_the_arguments_as_the_compiler_takes_them() -> None:
    flags = ["-x=1", "-y"]
    assert CompilerCommand.of(["opt", "a.ll"]).with_flags(flags) == ["opt", "-x=1", "-y", "a.ll"]
    assert CompilerCommand.of(["zig", "cc", "a.c"]).with_flags(flags) == [
        "zig",
        "cc",
        "-mllvm",
        "-x=1",
        "-mllvm",
        "-y",
        "a.c",
    ]
    assert CompilerCommand.of(["clang", "-cc1", "a.bc"]).with_flags(flags, ["-z"]) == [
        *["clang", "-cc1", "-mllvm", "-x=1", "-mllvm", "-y", "-z", "a.bc"]
    ]
    quiet = "--start-no-unused-arguments -mllvm -x=1 -mllvm -y --end-no-unused-arguments"
    assert (
        CompilerCommand.of(["ccache", "clang", "--", "a.c"]).with_flags(flags) == f"ccache clang {quiet} -- a.c".split()
    )


def test_a_flag_that_the_user_gives_is_not_given_twice() -> None:
    compiler = CompilerCommand.of(["opt", "--x=2", "a.ll"])
    assert compiler.with_flags(["-x=1", "-y"]) == ["opt", "-y", "--x=2", "a.ll"]


@pytest.mark.parametrize(
    ("command", "repeatable"),
    [
        ("clang -c x.c", True),
        ("clang -c -x c -", False),
        ("clang -S x.c -o -", False),
        (f"opt {__file__} -o x.bc", True),
        (f"opt {__file__} -disable-output", True),
        (f"opt {__file__}", False),
        ("opt -o x.bc", False),
        (f"llc {__file__}", True),
        (f"llc {__file__} -o -", False),
        ("llc -o x.s", False),
    ],
)
def test_what_uses_stdin_or_stdout_cannot_be_run_once_more(command: str, repeatable: bool) -> None:
    assert CompilerCommand.of(command.split()).repeatable is repeatable


@pytest.mark.parametrize(
    ("command", "size_level"),
    [
        ("clang -Oz -c x.c", True),
        ("clang -O2 -Oz -c x.c", True),
        ("clang -Oz -O2 -c x.c", False),
        ("clang -c x.c", False),
        ("zig cc -Oz -c x.c", False),
        ("python -m ziglang c++ -Oz -c x.c -Xclang -Oz", True),
        ("zig cc -Xclang -Oz -c x.c -Xclang -O2", False),
        ("opt -passes=default<Oz> x.ll", True),
        ("opt -Oz x.ll", True),
        ("opt -passes=default<O2> x.ll", False),
    ],
)
def test_llvms_own_oz_is_told_from_other_levels(command: str, size_level: bool) -> None:
    assert CompilerCommand.of(command.split()).size_level is size_level

"""Compiling without a plugin, and learning what the compiler asked."""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from policybridge_client.llvm.asked import Asked, asked
from policybridge_client.llvm.compilers import CompilerCommand
from policybridge_client.llvm.surroundings import CompilerLimits, Surroundings
from policybridge_core.errors import InvalidError, PreconditionError
from tests.client.compilers import DRIVERS, ZIG, parameters, start, write_source

CPP = """\
#define ALWAYS inline __attribute__((always_inline))
int sink(int);
namespace { template <int N> struct Counter { int n = N; int next(int x) { return sink(x + n) * sink(n); } }; }
struct Base { virtual int get(int) = 0; virtual ~Base() {} };
template <int N> struct Derived final : Base { int get(int x) override { return Counter<N>().next(x) + N; } };
static ALWAYS int forced(int x) { return sink(x) + 1; }
static int many(int first, ...) { return sink(first); }
int use(Base *base, int x) {
  Derived<3> three; Derived<5> five;
  return base->get(x) + three.get(x) + five.get(x) + forced(x) + forced(x + 1) + many(1, 2) + many(2);
}
int more(int x) { Derived<3> three; return three.get(x) + forced(x) + use(&three, x); }
"""


@pytest.fixture(autouse=True)
def channels(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the channels of this process in a folder that is looked at afterwards."""
    monkeypatch.setattr("tempfile.tempdir", str(folder / "channels"))


def words_for(compiler: str, source: Path, *arguments: str) -> list[str]:
    begin = start(compiler)
    if source.suffix != ".c":
        begin = [*begin[:-1], "c++"] if compiler == "ziglang" else [begin[0].replace("clang", "clang++")]
    return [*begin, "-Oz", "-fno-exceptions", *arguments, "-c", source.name, "-o", "made.o"]


def plainly(words: Sequence[str]) -> bytes:
    subprocess.run(words, check=True, capture_output=True)
    return Path("made.o").read_bytes()


def flipped(found: Asked) -> dict[str, bool]:
    pairs = zip(found.log.keys, found.log.default, strict=True)
    return {key: not default for number, (key, default) in enumerate(pairs) if number % 3 == 1}


@pytest.mark.parametrize("compiler", DRIVERS)
@pytest.mark.parametrize("language", ["c", "cpp"])
def test_every_decision_has_a_name_and_the_object_is_that_of_a_plain_run(
    folder: Path, compiler: str, language: str
) -> None:
    source = write_source(folder)
    if language == "cpp":
        source = folder / "module.cpp"
        source.write_text(CPP)
    words = words_for(compiler, source)
    expected = plainly(words)
    found = asked(words, {})
    assert found.ok
    assert found.seconds > 0
    assert Path("made.o").read_bytes() == expected
    log = found.log
    assert len(log) > 5
    assert "" not in log.caller
    assert "" not in log.callee
    assert {"forced", "_ZL6forcedi"}.isdisjoint(log.callee)
    assert (log.taken == log.default).all()
    assert (log.numbers["cost"] == log.numbers["cost_estimate"]).all()
    assert len(set(log.keys)) == len(log)
    assert (log.by, log.digest, log.path) == ("sequence", None, source.name)
    assert log.level == ("Os" if compiler == "ziglang" else "Oz")


@pytest.mark.parametrize("compiler", DRIVERS)
def test_decisions_are_taken_and_what_differs_from_llvms_own_gives_the_same_object_again(
    folder: Path, compiler: str
) -> None:
    words = words_for(compiler, write_source(folder))
    wanted = flipped(asked(words, {}))
    first = asked(words, wanted)
    made = Path("made.o").read_bytes()
    assert first.ok
    # The first flips change what LLVM asks afterwards.
    assert 0 < first.log.applied <= first.log.of == len(wanted)
    assert made != plainly(words)
    pairs = zip(first.log.keys, first.log.default, first.log.taken, strict=True)
    kept = {key: bool(taken) for key, default, taken in pairs if taken != default}
    assert kept
    again = asked(words, kept)
    assert again.log.applied == len(kept)
    assert Path("made.o").read_bytes() == made


@pytest.mark.parametrize("compiler", ["ziglang", *parameters("clang-22")])
def test_modules_of_bitcode_are_compiled_by_cc1(folder: Path, compiler: str) -> None:
    source = write_source(folder)
    begin = [*ZIG[:-1], "clang"] if compiler == "ziglang" else [compiler]
    emit = ["-Xclang", "-disable-llvm-passes", "-emit-llvm", "-c", source.name, "-o", "module.bc"]
    subprocess.run([*begin, "-Oz", *emit], check=True)
    words = [*begin, "-cc1", "-emit-obj", "-Oz", "-o", "made.o", "-x", "ir", "module.bc"]
    expected = plainly(words)
    found = asked(words, {})
    assert (found.ok, found.log.level, "middle0" in found.log.callee) == (True, "Oz", True)
    assert Path("made.o").read_bytes() == expected


@pytest.mark.parametrize("optimizer", parameters("opt-19", "opt-22"))
def test_opt_is_asked_too(folder: Path, optimizer: str) -> None:
    clang = optimizer.replace("opt", "clang")
    if shutil.which(clang) is None:
        pytest.skip(f"no {clang} here")
    source = write_source(folder)
    emit = ["-Xclang", "-disable-llvm-passes", "-emit-llvm", "-c", source.name, "-o", "module.bc"]
    subprocess.run([clang, "-Oz", *emit], check=True)
    found = asked([optimizer, "-passes=default<Oz>", "module.bc", "-o", "made.bc"], {})
    assert (found.ok, found.log.level, "middle0" in found.log.callee) == (True, "Oz", True)


def test_names_of_odd_bytes_are_told(folder: Path) -> None:
    source = folder / "module.c"
    source.write_text(
        'int sink(int);\nint odd(int) __asm__("it\'s 100% \\"odd\\" \\t é");\n'
        "__attribute__((noinline)) int sink2(int x) { return sink(x); }\n"
        "int odd(int x) { return sink(x) * sink(x + 1); }\nint user(int x) { return odd(x) + odd(x + 2); }\n"
    )
    found = asked(words_for("ziglang", source), {})
    assert [name.lstrip("\x01") for name in found.log.callee] == ['it\'s 100% "odd" \t é'] * 2


def test_a_compiler_that_fails_says_why_and_one_that_takes_too_long_is_ended(folder: Path) -> None:
    source = folder / "module.c"
    source.write_text("int f(void) { return 1 +; }\n")
    found = asked(words_for("ziglang", source), {})
    assert (found.ok, found.late, len(found.log)) == (False, False, 0)
    assert "expected expression" in found.message
    write_source(folder, functions=400)
    late = asked(words_for("ziglang", source), {}, Surroundings(limits=CompilerLimits(seconds=0.1)))
    assert (late.ok, late.late) == (False, True)


def test_a_compiler_without_enough_memory_fails_and_is_no_end_of_ours(folder: Path) -> None:
    found = asked(words_for("ziglang", write_source(folder)), {}, Surroundings(limits=CompilerLimits(memory=1 << 25)))
    assert not found.ok


def test_two_modules_in_one_command_are_refused(folder: Path) -> None:
    sources = [write_source(folder, name).name for name in ("a.c", "b.c")]
    with pytest.raises(PreconditionError, match="several modules"):
        asked([*ZIG, "-Oz", "-shared", *sources, "-o", "made.so"], {})


@pytest.mark.parametrize("compiler", parameters("clang-19"))
def test_an_llvm_that_does_not_tell_its_own_decisions_is_refused(folder: Path, compiler: str) -> None:
    with pytest.raises(PreconditionError, match="before LLVM 21 it tells them at -Oz only"):
        asked([compiler, "-O2", "-c", write_source(folder).name], {})


@pytest.mark.parametrize(
    ("command", "level"),
    [
        ("clang -O2 -Oz -c Other.c", "Oz"),
        ("clang -Oz -Os -c Other.c", "Os"),
        ("clang -Oz -O3 -c a.c", "O2"),
        ("clang -c Os.c", "O2"),
        ("zig cc -Oz -c a.c", "Os"),
        ("clang -cc1 -Oz a.bc", "Oz"),
        ("opt -passes=default<Os> a.bc", "Os"),
        ("opt -passes=default<Oz> a.bc", "Oz"),
        ("opt -Os a.bc", "Os"),
        ("opt -passes=default<O3> a.bc", "O2"),
    ],
)
def test_the_level_of_a_command_is_that_of_its_last_option(command: str, level: str) -> None:
    assert CompilerCommand.of(command.split()).level == level


def test_what_is_no_compiler_is_refused() -> None:
    with pytest.raises(InvalidError, match="no compiler that asks"):
        asked(["ls", "-l"], {})


def test_a_folder_with_a_space_is_compiled_in(folder: Path) -> None:
    inner = folder / "with space"
    inner.mkdir()
    source = write_source(inner)
    assert asked(words_for("ziglang", source), {}, Surroundings(cwd=inner)).ok
    assert (inner / "made.o").is_file()

"""``policybridge autotune export``: LLVM's replay gives the object of the store, or it is said why not."""

import argparse
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from policybridge_client.decisions import (
    ALL_FUNCTIONS,
    Decision,
    Heading,
    PassChoice,
    Section,
    Store,
    parse_sites,
    read_store,
    write_store,
)
from policybridge_train.compiling.module import Module
from policybridge_train.corpus.description import Corpus
from policybridge_train.tuning import export
from policybridge_train.tuning.replaying import flags_for, replay_of
from tests.client.compilers import ZIG, write_source
from tests.native.conftest import MAJORS, built
from tests.native.llvm.plugins import need
from tests.native.llvm.stores import Tuner, flipped

CPP = """\
#include <map>
#include <string>
#include <vector>
#define CHECK(a, b) do { if (!same((a), (b)) || !same((b), (a))) report(#a); } while (0)
static bool same(const std::string &a, const std::string &b) { return a.size() == b.size() && a == b; }
void report(const char *);
void add(std::map<std::string, std::vector<int>> &all, const std::string &key, int value) {
  all[key].push_back(value); CHECK(key, std::string("a") + key);
}
std::string join(const std::vector<std::string> &all) { std::string s; for (auto &a : all) s += a + ","; return s; }
"""


@pytest.fixture(params=MAJORS)
def tuner(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tuner:
    monkeypatch.chdir(tmp_path)
    for tool in ("cmake", "ninja", "g++"):
        need(tool)
    return Tuner.of(built, request.param, tmp_path)


def exported(*words: str) -> int:
    parser = argparse.ArgumentParser()
    export.add_arguments(parser)
    return export.run(parser.parse_args(["--store", "tuned.db", "-o", "replay.txt", *words]))


def command(tuner: Tuner, source: Path, *flags: str) -> list[str]:
    driver = "clang" if source.suffix == ".c" else "clang++"
    return [
        "--plugins",
        str(tuner.path.parent),
        "--",
        need(f"{driver}-{tuner.major}"),
        "-Oz",
        *flags,
        "-c",
        source.name,
    ]


def test_a_module_of_which_the_store_has_nothing_is_told_with_those_that_it_has(
    tuner: Tuner, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_source(tuner.folder)
    tuner.write(flipped(tuner.logged(Path(source.name)).sites, "middle"), source.name)
    other = source.with_name("other.c")
    other.write_text(source.read_text() + "int another;\n")
    assert exported(*command(tuner, other, "-gline-tables-only")) == 0
    said = capsys.readouterr().out
    assert "the store has no decisions for other.c at -Oz; it has some for " in said
    assert f"{source.name} (LLVM {tuner.major}, -Oz)" in said


def test_the_replay_of_c_gives_the_identical_object_without_a_plugin(
    tuner: Tuner, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_source(tuner.folder)
    tuner.write(flipped(tuner.logged(Path(source.name)).sites, "middle"), source.name)
    assert exported(*command(tuner, source, "-gline-tables-only")) == 0
    said = capsys.readouterr().out
    assert "replay.txt: " in said
    assert "LLVM's replay gives the identical object" in said
    assert all(flag in said for flag in flags_for("replay.txt"))
    assert "'middle0' inlined into 'module0' at callsite module0:0:" in Path("replay.txt").read_text()
    flags = [word for flag in flags_for("replay.txt") for word in ("-mllvm", flag)]
    tuned = tuner.compile(Path(source.name), "-Oz", "-g1", decisions="tuned.db").output
    assert tuner.plain(Path(source.name), "-Oz", "-g1", *flags) == tuned != tuner.plain(Path(source.name), "-Oz", "-g1")


def test_the_replay_leaves_choices_of_passes_out_and_says_so(tuner: Tuner, capsys: pytest.CaptureFixture[str]) -> None:
    source = write_source(tuner.folder)
    tuner.write(flipped(tuner.logged(Path(source.name)).sites, "middle"), source.name)
    (section,) = read_store(Path("tuned.db")).sections
    passes = (PassChoice(ALL_FUNCTIONS, "skip", "codegenprepare"), PassChoice(ALL_FUNCTIONS, "skip", "x86-isel"))
    write_store(Store([replace(section, passes=passes)]), Path("tuned.db"))
    assert exported(*command(tuner, source, "-gline-tables-only")) == 0
    said = capsys.readouterr().out
    assert "the store's choices of passes are left out" in said
    assert "LLVM's replay gives the identical object" in said
    assert "'middle0' inlined into 'module0' at callsite module0:0:" in Path("replay.txt").read_text()


def test_calls_of_cpp_at_one_place_are_told_apart_by_discriminators_or_named(
    tuner: Tuner, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tuner.folder / "module.cpp"
    source.write_text(CPP)
    log = tuner.logged(Path(source.name)).sites
    every_third = list(zip(log.keys, log.default, strict=True))[::3]
    tuner.write({key: not default for key, default in every_third}, source.name)
    assert exported(*command(tuner, source, "-g1")) == 1
    said = capsys.readouterr().out
    assert "not said: " in said
    assert "calls at this place are decided differently; -fdebug-info-for-profiling can tell them apart" in said
    assert "LLVM's replay gives another object than the plugin" in said
    assert exported(*command(tuner, source, "-g1", "-fdebug-info-for-profiling")) == 0
    assert "not said" not in capsys.readouterr().out


def test_without_line_tables_nothing_can_be_said_and_that_is_told(
    tuner: Tuner, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_source(tuner.folder)
    tuner.write(flipped(tuner.logged(Path(source.name)).sites, "middle"), source.name)
    assert exported(*command(tuner, source)) == 1
    assert "it has no location; compile with line tables (-gline-tables-only)" in capsys.readouterr().out
    assert Path("replay.txt").read_bytes() == b""


def test_a_module_of_which_the_store_has_nothing_is_an_empty_replay(tuner: Tuner) -> None:
    source = write_source(tuner.folder)
    tuner.write({}, "other.c")
    assert exported(*command(tuner, source, "-g1")) == 0
    assert Path("replay.txt").read_bytes() == b""


def test_a_bitcode_module_compiled_by_cc1_is_exported(tuner: Tuner) -> None:
    source = write_source(tuner.folder)
    words = ["-Oz", "-g1", "-Xclang", "-disable-llvm-passes", "-emit-llvm", "-c", source.name, "-o", "module.bc"]
    subprocess.run([need(f"clang-{tuner.major}"), *words], check=True)
    tuner.write(flipped(tuner.logged(Path(source.name)).sites, "middle"), source.name)
    compiler = [need(f"clang-{tuner.major}"), "-cc1", "-Oz", "-emit-obj", "-x", "ir", "module.bc"]
    assert exported("--plugins", str(tuner.path.parent), "--", *compiler) == 0
    assert Path("replay.txt").stat().st_size > 0


def test_a_command_that_does_not_optimise_is_told_so(tuner: Tuner, capsys: pytest.CaptureFixture[str]) -> None:
    source = write_source(tuner.folder)
    tuner.write(flipped(tuner.logged(Path(source.name)).sites, "middle"), source.name)
    assert exported(*command(tuner, source, "-O0", "-g1")) == 2
    assert "-O0 -g1 -c module.c: give it -O1 or more" in capsys.readouterr().err


def test_a_module_of_a_corpus_is_exported_by_its_name(tuner: Tuner) -> None:
    source = write_source(tuner.folder)
    bitcode = tuner.folder / "corpus" / "lib" / "module.bc"
    bitcode.parent.mkdir(parents=True)
    words = ["-Oz", "-g1", "-Xclang", "-disable-llvm-passes", "-emit-llvm", "-c", source.name, "-o", str(bitcode)]
    subprocess.run([need(f"clang-{tuner.major}"), *words], check=True)
    bitcode.with_suffix(".cmd").write_bytes(b"-triple\0x86_64-unknown-linux-gnu\0-Oz\0")
    Corpus(tuner.folder / "corpus", [Module("lib/module", tuner.folder / "corpus")]).write()
    tuner.write(flipped(tuner.logged(Path(source.name)).sites, "middle"), "lib/module")
    names = ["--corpus", "corpus", "--module", "lib/module", "--compiler", f"clang-{tuner.major}"]
    assert exported("--plugins", str(tuner.path.parent), *names) == 0
    assert Path("replay.txt").stat().st_size > 0
    assert exported("--plugins", str(tuner.path.parent), *names[:3], "lib/other", *names[4:]) == 2


def test_a_source_that_does_not_compile_says_so(tuner: Tuner, capsys: pytest.CaptureFixture[str]) -> None:
    source = tuner.folder / "module.c"
    source.write_text("int f(void) { return 1 +; }\n")
    tuner.write({}, source.name)
    assert exported(*command(tuner, source, "-g1")) == 2
    assert "expected expression" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "give either a command behind --, or --corpus and --module"),
        (["--", "ls"], "no compiler that asks is started by 'ls'"),
        (["--", *ZIG, "-c", "module.c"], "an object is compiled with clang, not with zig cc"),
        (["--corpus", "nowhere", "--module", "m"], "nowhere"),
    ],
)
def test_what_cannot_be_exported_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    section = Section(Heading(22, "Oz", "site", None, "a.c"), [Decision("0" * 16, True)])
    write_store(Store([section]), "tuned.db")
    assert exported(*words) == 2
    assert said in capsys.readouterr().err


def row(callee: str, location: str, default: int, taken: int, *, caller: str = "f", number: int = 0) -> str:
    words = ["0" * 16, default, taken, taken, caller, caller, callee, number, 0, 0, 1, 5, 5, 9, 9, 1, 0, 0, 0, location]
    return "\t".join(map(str, words)) + "\n"


def test_only_what_differs_from_llvms_own_is_a_line_and_what_llvm_could_not_read_is_named() -> None:
    rows = [
        row("same", "f:1:1", 1, 1),
        row("more", "f:2:1", 0, 1),
        row("less", "g:1:2%20@%20f:3:1.2", 1, 0),
        row("it's", "f:4:1", 0, 1),
        row("", "f:5:1", 0, 1),
        row("twice", "f:6:1", 0, 1),
        row("twice", "f:6:1", 0, 0, number=1),
        row("again", "f:8:1", 1, 0),
        row("again", "f:8:1", 1, 1),
        row("agreed", "f:7:1", 0, 1),
        row("agreed", "f:7:1", 1, 1, caller="g"),
    ]
    log = parse_sites(("policybridge-sites 1\t-\tOz\ta.c\t6\t6\n" + "".join(rows)).encode())
    replay = replay_of(log)
    assert replay.text.decode().splitlines() == [
        "policybridge: 'more' inlined into 'f' at callsite f:2:1;",
        "policybridge: 'less' will not be inlined into 'f' at callsite g:1:2 @ f:3:1.2;",
        "policybridge: 'agreed' inlined into 'f' at callsite f:7:1;",
    ]
    assert replay.said == 3
    assert [unsaid.callee for unsaid in replay.unsaid] == ["it's", "", "twice", "again"]
    assert "2 calls at this place are decided differently" in replay.unsaid[2].why
    assert replay.unsaid[3].why == "LLVM asks 2 times about this call, and is answered differently"
    assert str(replay.unsaid[1]).startswith("a call through a pointer in f at f:5:1: its callee")

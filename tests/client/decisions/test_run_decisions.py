"""``policybridge run --decisions`` without the native launcher: stores by sequence, in the interactive mode."""

import json
import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from policybridge_client.decisions import (
    By,
    Decision,
    Heading,
    Section,
    Store,
    format_store,
    path_in_store,
    write_store,
)
from policybridge_client.llvm.asked import asked
from policybridge_client.llvm.decided import DecisionsConfig, run_with_decisions
from tests.client.compilers import DRIVERS, ZIG, left_behind, parameters, start, write_source
from tests.conftest import command


@pytest.fixture(autouse=True)
def channels(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the channels of this process in a folder that is looked at afterwards."""
    monkeypatch.setattr("tempfile.tempdir", str(folder / "channels"))


def tune(words: Sequence[str], store: Path, source: Path, *, by: By = "sequence") -> bytes:
    """Write a store that makes the opposite of a third of the decisions; return the object that it gives."""
    first = asked(words, {})
    wanted = [
        (key, default)
        for key, default in zip(first.log.keys, first.log.default, strict=True)
        if key.endswith(".0") or not default
    ]
    tuned = asked(words, {key: not default for key, default in wanted[1::3]})
    assert tuned.ok
    log = tuned.log
    rows = zip(log.keys, log.default, log.taken, log.caller, log.callee, strict=True)
    decisions = [
        Decision(key.partition(".")[0] if by == "site" else key, bool(taken), caller, callee)
        for key, default, taken, caller, callee in rows
        if taken != default
    ]
    assert decisions
    heading = Heading(22, log.level, by, None, path_in_store(source, store))
    write_store(Store([Section(heading, decisions)]), store)
    return Path("made.o").read_bytes()


def plain(words: Sequence[str]) -> bytes:
    subprocess.run(words, check=True)
    return Path("made.o").read_bytes()


def run(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command("run", *words), capture_output=True, text=True, check=False)


def statistics() -> Any:
    return json.loads(Path("stats.json").read_bytes())


@pytest.mark.parametrize("compiler", DRIVERS)
def test_a_store_gives_the_tuned_object_again_and_says_how_much_applied(folder: Path, compiler: str) -> None:
    source, store = write_source(folder), folder / "tuned.db"
    words = [*start(compiler), "-Oz", "-c", source.name, "-o", "made.o"]
    expected = tune(words, store, source)
    assert expected != plain(words)
    ended = run("--decisions", "tuned.db", "--plugins", "nowhere", "--stats", "stats.json", "--", *words)
    assert (ended.returncode, ended.stderr, ended.stdout) == (0, "", "")
    assert Path("made.o").read_bytes() == expected
    told = statistics()["store"]
    assert (told["path"], told["module"], told["unmatched"]) == ("tuned.db", "module.c", 0)
    assert told["applied"] > 0


def test_an_edit_elsewhere_leaves_decisions_that_still_apply_and_the_rest_are_told(folder: Path) -> None:
    source, store = write_source(folder), folder / "tuned.db"
    words = [*ZIG, "-Oz", "-c", source.name, "-o", "made.o"]
    tune(words, store, source)
    source.write_text(source.read_text().replace("module0(int x) { return ", "module0(int x) { return sink(x) * "))
    text = store.read_text()
    store.write_text(text + "ffffffffffffffff.0 inline f g\n")
    decided = run_with_decisions(words, DecisionsConfig(store))
    assert decided.store is not None
    applied, of = decided.store.applied, decided.store.applied + decided.store.unmatched
    assert applied >= 1
    assert decided.note == f"tuned.db: {applied} of {of} decisions applied to module.c"


def test_decisions_beyond_the_growth_limit_are_llvms_own_and_told(folder: Path) -> None:
    source, store = write_source(folder), folder / "tuned.db"
    words = [*ZIG, "-Oz", "-c", source.name, "-o", "made.o"]
    log = asked(words, {}).log
    section = Section(Heading(22, log.level, "sequence", None, source.name), [Decision(key, True) for key in log.keys])
    write_store(Store([section]), store)
    ended = run("--decisions", "tuned.db", "--growth-limit", "0.01", "--stats", "stats.json", "--", *words)
    limited = statistics()["limited"]
    assert (ended.returncode, limited > 0) == (0, True)
    told = f"policybridge run: {limited} decisions are the compiler's own: the policy has added 0.01 times the module's"
    assert ended.stderr.startswith(told)


@pytest.mark.parametrize("compiler", DRIVERS)
def test_a_source_that_is_not_in_the_store_compiles_as_it_is_and_silently(folder: Path, compiler: str) -> None:
    source, store = write_source(folder, "other.c"), folder / "tuned.db"
    write_store(Store([Section(Heading(22, "Oz", "sequence", None, "a.c"), [Decision("0" * 16 + ".0", True)])]), store)
    words = [*start(compiler), "-Oz", "-c", source.name, "-o", "made.o"]
    expected = plain(words)
    ended = run("--decisions", "tuned.db", "--stats", "stats.json", "--", *words)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert Path("made.o").read_bytes() == expected
    assert statistics()["store"] is None


def test_decisions_by_site_without_a_plugin_are_not_applied_and_one_line_says_so(folder: Path) -> None:
    source, store = write_source(folder), folder / "tuned.db"
    words = [*ZIG, "-Oz", "-c", source.name, "-o", "made.o"]
    tune(words, store, source, by="site")
    expected = plain(words)
    ended = run("--decisions", "tuned.db", "--", *words)
    assert ended.returncode == 0
    assert ended.stderr == (
        "policybridge run: all decisions are the compiler's own: tuned.db has those of module.c by site, which "
        "policybridge-run and a plugin apply; policybridge doctor tells what this machine has\n"
    )
    assert Path("made.o").read_bytes() == expected


@pytest.mark.parametrize("compiler", parameters("clang-19"))
def test_an_llvm_that_does_not_tell_its_own_decisions_compiles_with_them_and_says_so(
    folder: Path, compiler: str
) -> None:
    source, store = write_source(folder), folder / "tuned.db"
    section = Section(Heading(19, "O2", "sequence", None, "module.c"), [Decision("0" * 16 + ".0", True)])
    write_store(Store([section]), store)
    decided = run_with_decisions([compiler, "-O2", "-c", source.name], DecisionsConfig(store))
    assert decided.status == 0
    assert "this LLVM tells its own decisions at -Oz only" in decided.note


@pytest.mark.parametrize("broken", [None, b"", b"garbage\n", b"policybridge-decisions 1\nmodule llvm=x\n"])
def test_a_broken_store_never_breaks_a_build_unless_that_is_wanted(folder: Path, broken: bytes | None) -> None:
    source = write_source(folder)
    words = [*ZIG, "-Oz", "-c", source.name, "-o", "made.o"]
    expected = plain(words)
    if broken is not None:
        (folder / "tuned.db").write_bytes(broken)
    ended = run("--decisions", "tuned.db", "--", *words)
    assert ended.returncode == 0
    assert ended.stderr.startswith("policybridge run: all decisions are the compiler's own: ")
    assert ended.stderr.count("\n") == 1
    assert "tuned.db" in ended.stderr
    assert Path("made.o").read_bytes() == expected
    Path("made.o").unlink()
    ended = run("--decisions", "tuned.db", "--fallback", "error", "--stats", "stats.json", "--", *words)
    assert ended.returncode == 70
    assert ended.stderr.startswith("policybridge run: no decisions, and nothing compiled: ")
    assert not Path("made.o").exists()
    assert statistics()["error"]["reason"]


@pytest.mark.parametrize("compiler", DRIVERS)
def test_commands_that_only_link_or_tell_something_run_as_they_are(folder: Path, compiler: str) -> None:
    source = folder / "main.c"
    source.write_text("int main(void) { return 0; }\n")
    subprocess.run([*start(compiler), "-c", source.name, "-o", "main.o"], check=True)
    write_store(Store(), folder / "tuned.db")
    for words in (["main.o", "-o", "main", "-Werror"], ["--version"]):
        ended = run("--decisions", "tuned.db", "--", *start(compiler), *words)
        assert (ended.returncode, ended.stderr) == (0, "")
    assert subprocess.run(["./main"], check=False).returncode == 0


def test_the_compilers_status_and_words_are_passed_on(folder: Path) -> None:
    source, store = folder / "module.c", folder / "tuned.db"
    source.write_text("int f(void) { return 1 +; }\n")
    section = Section(Heading(22, "Os", "sequence", None, "module.c"), [Decision("0" * 16 + ".0", True)])
    store.write_bytes(format_store(Store([section])))
    ended = run("--decisions", "tuned.db", "--", *ZIG, "-Oz", "-c", source.name)
    assert ended.returncode == 1
    assert "expected expression" in ended.stderr


@pytest.mark.usefixtures("heeded_signals")
def test_a_signal_ends_the_compiler_and_its_children(folder: Path) -> None:
    source = write_source(folder, "long.c", functions=3000)
    write_store(Store(), folder / "tuned.db")
    words = command("run", "--decisions", "tuned.db", "--", *ZIG, "-O3", "-c", str(source))
    with subprocess.Popen(words, stdout=subprocess.DEVNULL) as running:
        while running.poll() is None and len(left_behind(source)) < 2:
            time.sleep(0.01)
        running.terminate()
        assert running.wait(60) == 143
    assert left_behind(source) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--decisions", "x", "--policy", "y"], "argument --policy: not allowed with argument --decisions"),
        (["--decisions", "x", "--server", "y"], "with --decisions no server is asked: give either --decisions, or"),
        (["--decisions", "x", "--task", "evict"], "a store has decisions of the task 'inline' alone, not of 'evict'"),
        (["--policy", "x", "--server", "s", "--plugins", "y"], "--plugins is for --decisions"),
    ],
)
def test_options_that_do_not_go_together_are_refused(words: list[str], said: str) -> None:
    ended = run(*words, "--", "clang-22", "-c", "a.c")
    assert ended.returncode == 2
    assert said in ended.stderr


def test_a_source_whose_name_is_no_unicode_is_found(folder: Path) -> None:
    source, store = write_source(folder).rename(folder / os.fsdecode(b"m\xff n.c")), folder / "tuned.db"
    words = [*ZIG, "-Oz", "-c", source.name, "-o", "made.o"]
    expected = tune(words, store, source)
    assert b"path=m\xff%20n.c\n" in store.read_bytes()
    ended = run("--decisions", "tuned.db", "--stats", "stats.json", "--", *words)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert Path("made.o").read_bytes() == expected
    assert statistics()["store"]["module"] == "m\ufffd n.c"


def test_a_store_and_a_source_in_folders_with_spaces_are_found(folder: Path) -> None:
    inner = folder / "a folder" / "of sources"
    inner.mkdir(parents=True)
    source, store = write_source(inner).rename(inner / "my module.c"), folder / "a folder" / "my store.db"
    words = [*ZIG, "-Oz", "-c", str(source), "-o", "made.o"]
    expected = tune(words, store, source)
    assert b"path=of%20sources/my%20module.c" in store.read_bytes()
    os.chdir(inner)
    decided = run_with_decisions([*words[:-1], str(folder / "made.o")], DecisionsConfig(store))
    assert (folder / "made.o").read_bytes() == expected
    assert decided.note == ""

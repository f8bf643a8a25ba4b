"""``policybridge autotune`` where there is no plugin: everywhere."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from policybridge_client.decisions import read_store
from policybridge_train.corpus.description import Corpus
from policybridge_train.tuning.flips import Decided
from policybridge_train.tuning.module import compile_with
from tests.training.corpora import write_corpus
from tests.training.ended import wait_until_gone
from tests.training.tuning.autotuning import CountedCompiler, rename_oddly, searches, zig_compiler
from tests.training.tuning.boxes import boxes

BUDGET = 5


def _stops_at(compile_: int) -> str:
    """Give the shell's words with which a compile does not end by itself; its command still has the compiler's path."""
    return f'test $compiles != {compile_} || {{ echo $$ > "$0.process"; exec tail -f "$0"; }}'


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    sources = {"p/a.c": boxes("a"), "p/b c.c": boxes("b"), "p/calls nothing.c": "int x;\n"}
    return write_corpus(tmp_path / "a corpus", sources)


@pytest.fixture
def compiler(tmp_path: Path) -> CountedCompiler:
    return CountedCompiler.of(tmp_path / "a compiler", "zig")


def test_a_corpus_becomes_smaller_and_the_store_alone_makes_the_same_objects_again(
    tmp_path: Path, corpus: Corpus, compiler: CountedCompiler
) -> None:
    store = tmp_path / "tuned.db"
    assert compiler.tune(store, "--corpus", corpus.folder, "--budget", BUDGET) == 0
    found = searches(store)
    sections = {section.heading.path: section for section in read_store(store).sections}
    assert set(sections) == {"p/a.c", "p/b c.c"}
    for module in corpus.modules:
        search = found[module.name]
        assert (search.best_text < search.default_text) == (module.name in sections)
        answers = sections[module.name].answers if module.name in sections else {}
        again = compile_with(zig_compiler(), module, Decided(answers))
        assert (again.digest, again.text) == (search.best_object, search.best_text)


def test_the_table_has_the_text_and_the_code_alone_of_each_project_before_and_after(
    tmp_path: Path, compiler: CountedCompiler, capfd: pytest.CaptureFixture[str]
) -> None:
    # Its constants are text and no code.
    constants = "const int constants[] = {1, 2, 3, 4, 5, 6, 7};\n"
    corpus = write_corpus(
        tmp_path / "corpus", {"one/a.c": boxes("a", [constants]), "one/b.c": boxes("b"), "two/c.c": boxes("c")}
    )
    store = tmp_path / "tuned.db"
    assert compiler.tune(store, "--corpus", corpus.folder, "--budget", BUDGET) == 0
    shown = [line.split() for line in capfd.readouterr().out.splitlines()]
    rows = {words[0]: words[1:] for words in shown if words and words[0] in {"one", "two", "all"}}
    found = searches(store)
    for project in ("one", "two", "all"):
        own = [search for name, search in found.items() if project in {name.partition("/")[0], "all"}]
        sizes = [
            f"{sum(getattr(search, name) for search in own):,}"
            for name in ("default_text", "best_text", "default_exec", "best_exec")
        ]
        count, text, tuned, _, _, exec_, exec_tuned, *_ = rows[project]
        assert (count, [text, tuned, exec_, exec_tuned]) == (str(len(own)), sizes)
    for search in found.values():
        assert search.default_exec < search.default_text
        assert search.best_text < search.default_text


def test_what_is_tuned_is_not_compiled_again_and_a_larger_budget_goes_on(
    tmp_path: Path, corpus: Corpus, compiler: CountedCompiler
) -> None:
    # One compile at a time: a search ends early where all that is left is under way.
    words = ("--corpus", corpus.folder, "--module", "*a.c*", "--jobs", 1, "--budget")
    store = tmp_path / "tuned.db"
    assert compiler.tune(store, *words, 2) == 0
    # Without a plugin, the first is compiled a second time for LLVM's own advisor.
    assert compiler.compiles == 2 + 1
    assert compiler.tune(store, *words, 2) == 0
    assert compiler.compiles == 2 + 1
    assert compiler.tune(store, *words, BUDGET) == 0
    assert compiler.compiles == BUDGET + 1
    assert searches(store)["p/a.c"].spent == BUDGET


def test_a_budget_of_one_compile_changes_nothing(tmp_path: Path, corpus: Corpus, compiler: CountedCompiler) -> None:
    store = tmp_path / "tuned.db"
    assert compiler.tune(store, "--corpus", corpus.folder, "--budget", 1) == 0
    assert not store.exists() or not read_store(store).sections
    assert {search.spent for search in searches(store).values()} == {1}


def test_several_compiles_of_one_module_at_a_time_are_within_the_budget(
    tmp_path: Path, corpus: Corpus, compiler: CountedCompiler
) -> None:
    store = tmp_path / "tuned.db"
    assert compiler.tune(store, "--corpus", corpus.folder, "--module", "*a.c*", "--budget", 8, "--jobs", 4) == 0
    assert compiler.compiles <= 8 + 1
    search = searches(store)["p/a.c"]
    assert search.spent == compiler.compiles - 1
    assert search.best_text < search.default_text


def test_a_compiler_that_crashes_costs_a_compile_and_the_best_stands(
    tmp_path: Path, corpus: Corpus, capfd: pytest.CaptureFixture[str]
) -> None:
    crashing = CountedCompiler.of(tmp_path / "crashing", "zig", extra="test $compiles != 3 || kill -SEGV $$")
    store = tmp_path / "tuned.db"
    assert crashing.tune(store, "--corpus", corpus.folder, "--module", "*a.c*", "--budget", 2, "--jobs", 1) == 0
    assert "the best before stands" in capfd.readouterr().out
    search = searches(store)["p/a.c"]
    assert (search.spent, search.best, search.best_text) == (2, Decided(), search.default_text)
    assert crashing.tune(store, "--corpus", corpus.folder, "--module", "*a.c*", "--budget", 6, "--jobs", 1) == 0
    search = searches(store)["p/a.c"]
    assert search.best_text <= search.default_text
    assert crashing.compiles == search.spent + 1


def test_modules_that_do_not_compile_are_rows_and_not_the_end(
    tmp_path: Path, corpus: Corpus, compiler: CountedCompiler, capfd: pytest.CaptureFixture[str]
) -> None:
    corpus.modules[1].bitcode.write_bytes(b"no bitcode")
    corpus.modules[2].bitcode.unlink()
    store = tmp_path / "tuned.db"
    assert compiler.tune(store, "--corpus", corpus.folder, "--budget", 3) == 0
    said = capfd.readouterr().out
    assert re.search(r"p/b c\.c: .*error: ", said)
    assert "p/calls nothing.c: its bitcode cannot be read: " in said
    assert said.count("LLVM's own decisions stand") == 2
    assert [section.heading.path for section in read_store(store).sections] == ["p/a.c"]
    # Where nothing compiles, the status says so.
    assert compiler.tune(store, "--corpus", corpus.folder, "--module", "*b c*", "--budget", 3) == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_search_ends_its_compilers_and_goes_on_where_it_was(
    tmp_path: Path, corpus: Corpus, number: signal.Signals
) -> None:
    marker = tmp_path / "a compiler" / "clang"
    # The fourth compile does not end by itself; the first three are the default's two and a round's.
    slow = CountedCompiler.of(marker.parent, "zig", extra=_stops_at(4))
    store = tmp_path / "tuned.db"
    words = ("--corpus", corpus.folder, "--module", "*a.c*", "--budget", BUDGET, "--jobs", 1)
    process = subprocess.Popen(slow.command(store, *words), stderr=subprocess.PIPE, text=True)
    _wait_for(lambda: slow.compiles == 4, process)
    process.send_signal(number)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 130, said
    assert "interrupted; the best so far is in the store" in said
    wait_until_gone(marker)
    first = searches(store)["p/a.c"]
    assert first.spent == 2
    assert (first.best_text < first.default_text) == bool(store.exists() and read_store(store).sections)
    assert slow.tune(store, *words) == 0
    # Nothing but the compile that was ended is done again.
    assert slow.compiles == BUDGET + 2
    assert searches(store)["p/a.c"].spent == BUDGET


def test_a_killed_search_goes_on_where_it_was(tmp_path: Path, corpus: Corpus) -> None:
    slow = CountedCompiler.of(tmp_path / "slow", "zig", extra=_stops_at(4))
    store = tmp_path / "tuned.db"
    words = ("--corpus", corpus.folder, "--module", "*a.c*", "--budget", BUDGET, "--jobs", 1)
    process = subprocess.Popen(slow.command(store, *words), start_new_session=True)
    stopped = slow.path.parent / "clang.process"
    _wait_for(lambda: slow.compiles == 4 and stopped.exists() and bool(stopped.read_text()), process)
    tried = set(searches(store)["p/a.c"].tried)
    process.kill()
    process.wait()
    os.kill(int(stopped.read_text()), signal.SIGKILL)
    assert slow.tune(store, *words) == 0
    assert slow.compiles == BUDGET + 2
    search = searches(store)["p/a.c"]
    assert set(search.tried) > tried
    assert search.spent == BUDGET
    assert (search.best_text < search.default_text) == bool(store.exists() and read_store(store).sections)


def test_functions_may_have_names_that_are_no_utf8(tmp_path: Path, corpus: Corpus, compiler: CountedCompiler) -> None:
    rename_oddly(corpus.modules[0], "drop", "zig")
    store = tmp_path / "tuned.db"
    assert compiler.tune(store, "--corpus", corpus.folder, "--module", "*a.c*", "--budget", BUDGET) == 0
    search = searches(store)["p/a.c"]
    assert search.best_text < search.default_text
    assert read_store(store).sections


def test_two_searches_for_one_store_are_refused(
    tmp_path: Path, corpus: Corpus, capfd: pytest.CaptureFixture[str]
) -> None:
    slow = CountedCompiler.of(tmp_path / "slow", "zig", extra=_stops_at(1))
    store = tmp_path / "tuned.db"
    process = subprocess.Popen(slow.command(store, "--corpus", corpus.folder, "--jobs", 1), stderr=subprocess.PIPE)
    _wait_for(lambda: slow.compiles == 1, process)
    assert slow.tune(store, "--corpus", corpus.folder) == 2
    assert "another policybridge autotune works on" in capfd.readouterr().err
    process.terminate()
    process.communicate(timeout=120)
    assert process.returncode == 130


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "give one of two: --corpus DIR, or behind -- the command of a build"),
        (("--corpus", "{tmp}/none"), "holds no corpus"),
        (("--corpus", "{corpus}", "--module", "*other*"), "is asked for by these patterns"),
        (("--corpus", "{corpus}", "--level", "Oz"), "--level is for a build"),
        (("--corpus", "{corpus}", "--compiler", "no-clang"), "there is no compiler 'no-clang'"),
        (("--corpus", "{corpus}", "--compiler", "true"), "true is no clang"),
        (("--corpus", "{corpus}", "--plugins", "{tmp}"), "holds no policybridge-inliner-"),
        (("--corpus", "{corpus}", "--store", "{tmp}/text"), "a store begins with"),
        (("--corpus", "{corpus}", "--store", "{tmp}"), "Is a directory"),
        (("--corpus", "{corpus}", "--store", ""), "Is a directory"),
        (("--corpus", "{corpus}", "--store", "{tmp}/text/tuned.db"), "Not a directory"),
        (("--", "true"), "the build compiled nothing"),
        (("--", "false"), "the build ended with status 1, so nothing was tuned"),
    ],
)
def test_what_cannot_be_done_is_said_before_anything_is_compiled(
    corpus: Corpus,
    compiler: CountedCompiler,
    words: tuple[str, ...],
    message: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    tmp_path = corpus.folder.parent
    (tmp_path / "text").write_text("text\n")
    given = [word.format(tmp=tmp_path, corpus=corpus.folder) for word in words]
    assert compiler.tune(tmp_path / "tuned.db", *given) == 2
    assert message in capfd.readouterr().err
    assert (tmp_path / "text").read_text() == "text\n"
    assert compiler.compiles == 0


@pytest.mark.parametrize("words", [("--budget", "0"), ("--seconds", "nan"), ("--seconds", "-1"), ("--jobs", "0")])
def test_numbers_that_make_no_sense_are_refused(
    tmp_path: Path, corpus: Corpus, compiler: CountedCompiler, words: tuple[str, ...]
) -> None:
    with pytest.raises(SystemExit):
        compiler.tune(tmp_path / "tuned.db", "--corpus", corpus.folder, *words)


def test_progress_that_is_none_is_left_alone(
    tmp_path: Path, corpus: Corpus, compiler: CountedCompiler, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "tuned.db.work" / "progress.db"
    file.parent.mkdir()
    file.write_bytes(b"a file of somebody else's" * 100)
    assert compiler.tune(tmp_path / "tuned.db", "--corpus", corpus.folder) == 2
    assert "move it away" in capfd.readouterr().err
    assert file.read_bytes() == b"a file of somebody else's" * 100


def _wait_for(condition: Callable[[], bool], process: "subprocess.Popen[Any]") -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)

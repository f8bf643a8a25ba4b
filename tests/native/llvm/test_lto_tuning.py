"""``policybridge autotune --lto`` and ``score --lto``: programs as LLD optimises them."""

import json
import os
import re
import shlex
import shutil
import sqlite3
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from policybridge_client.cli import main
from policybridge_client.decisions import read_store
from policybridge_train.compiling.module import Program
from policybridge_train.corpus.description import Corpus
from policybridge_train.objects.elf import ObjectFile
from policybridge_train.tuning.choices import is_codegen
from policybridge_train.tuning.flips import Decided
from policybridge_train.tuning.search import Search
from tests.conftest import command
from tests.native.conftest import Target
from tests.native.llvm.plugins import built_plugin, need
from tests.training.corpora import write_corpus
from tests.training.corpus.projects import record, write_project
from tests.training.tuning.autotuning import CountedCompiler, searches
from tests.training.tuning.boxes import boxes

MAJOR = "22"
_USES = "one_{0}(n) + two_{0}(n) + three_{0}(n) + four_{0}(n) + five_{0}(n)"
_DECLARED = "int one_{0}(int), two_{0}(int), three_{0}(int), four_{0}(int), five_{0}(int);"
_SOURCES = {
    "a.c": boxes("a"),
    # No function is equal to one of a.c: LLD would fold the two, and choices of one of them would end that.
    "b.c": boxes("b").replace("(n", "(n + 9").replace(", 3)", ", 5)").replace(", 7)", ", 8)"),
    "main.c": "\n".join(map(_DECLARED.format, "ab"))
    + f"\nint main(int n, char **w) {{ return {' + '.join(map(_USES.format, 'ab'))} + !w; }}\n",
    "boxes.c": "struct box;\nvoid keep(struct box *b) {}\nvoid destroy(struct box *b, int x, int y) {}\n"
    "void release(struct box *b, int x) {}\nstruct box *make(int n) { return 0; }\n",
}
_MAKEFILE = """
CC = clang-22
CFLAGS = -Oz
prog: main.o a.o b.o libboxes.so
\t$(CC) -o $@ main.o a.o b.o ./libboxes.so
libboxes.so: boxes.o names
\t$(CC) -shared -Wl,--version-script=names -o $@ boxes.o
%.o: %.c
\t$(CC) $(CFLAGS) -fPIC -c $< -o $@
"""
_SIZES = re.compile(r"linked: (\d+) programs, text ([\d,]+), tuned ([\d,]+) ")


@dataclass(frozen=True)
class Tuned:
    """A project whose programs are tuned at link time."""

    mode: str
    project: Path
    corpus: Path
    store: Path
    compiler: CountedCompiler
    plugin: Path

    def tune(self, capfd: pytest.CaptureFixture[str], budget: int = 12) -> tuple[int, int, int]:
        """Give the number of programs, and their text by LLVM's own decisions and by the store's."""
        status = self.compiler.tune(self.store, "--corpus", self.corpus, "--lto", self.mode, "--budget", budget)
        said = capfd.readouterr()
        assert status == 0, said
        found = _SIZES.search(said.out)
        assert found, said
        return int(found[1]), int(found[2].replace(",", "")), int(found[3].replace(",", ""))

    def built(self, folder: Path, store: Path | None = None) -> list[dict[str, Any]]:
        """Build the program anew in ``folder`` with LTO, and give the statistics of the store by module."""
        folder.mkdir()
        for name in (*_SOURCES, "Makefile", "names"):
            shutil.copy(self.project / name, folder)
        linking = f"-flto={self.mode} -flto-jobs=1 --ld-path=ld.lld-{MAJOR} -Wl,--gc-sections,--icf=all"
        linking += f" -Wl,--load-pass-plugin={self.plugin}" if store else ""
        given = {"POLICYBRIDGE_DECISIONS": str(store), "POLICYBRIDGE_STATS": str(folder / "%m.json")} if store else {}
        words = ["make", "prog", f"CC=clang-{MAJOR} {linking}"]
        subprocess.run(words, cwd=folder, env={**os.environ, **given}, check=True)
        return [json.loads(path.read_text())["store"] for path in sorted(folder.glob("*.json"))]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    need(f"clang-{MAJOR}")
    folder = tmp_path_factory.mktemp("project")
    names = "BOXES_1 { global: keep; destroy; release; make; local: *; };\n"
    project = write_project(folder / "p", {**_SOURCES, "Makefile": _MAKEFILE, "names": names})
    return record(project, folder / "corpus", "make", "prog")


@pytest.fixture(params=["full", "thin"])
def tuned(request: pytest.FixtureRequest, native: Target, tmp_path: Path, corpus: Corpus) -> Tuned:
    plugin = built_plugin(native, "inliner", MAJOR)
    compiler = CountedCompiler.of(tmp_path / "counted", need(f"clang-{MAJOR}"), ("--plugins", str(plugin.parent)))
    linker = compiler.path.with_name("ld.lld")
    log = shlex.quote(str(compiler.path.with_name("log")))
    counting = f'case "$*" in *" -o "*) echo . >> {log};; esac'
    linker.write_text(f'#!/bin/sh\n{counting}\nexec {need(f"ld.lld-{MAJOR}")} "$@"\n')
    linker.chmod(0o755)
    project = corpus.folder.parent / "p"
    return Tuned(request.param, project, corpus.folder, tmp_path / "tuned.db", compiler, plugin)


def test_programs_become_smaller_at_link_time_within_the_budget_and_a_real_link_with_the_store_too(
    tuned: Tuned, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    count, before, after = tuned.tune(capfd)
    assert (count, after < before) == (2, True)
    sections = read_store(tuned.store).sections
    assert {section.heading.phase for section in sections} == {"link"}
    chosen = [f"{choice.action} {choice.name}" for section in sections for choice in section.passes]
    assert chosen
    assert tuned.mode == "thin" or all(map(is_codegen, chosen))
    parts, links = tuned.compiler.compiles, 4
    assert parts <= {"full": 2, "thin": 4}[tuned.mode] * 12 + links

    # What the search found, a score of the store alone finds again.
    scored = ["score", "--corpus", str(tuned.corpus), "--no-cache", "--candidate", str(tuned.store)]
    scored += ["--lto", tuned.mode, "--compiler", str(tuned.compiler.path), "--json", str(tmp_path / "scores.json")]
    assert main([*scored, "--plugins", str(tuned.plugin.parent)]) == 0
    rows = json.loads((tmp_path / "scores.json").read_text())["comparisons"][0]["modules"]
    assert {row["module"] for row in rows} == {"p/prog", "p/libboxes.so"}
    assert [sum(row[side]["text"] for row in rows) for side in ("before", "after")] == [before, after]

    plain, told = tuned.built(tmp_path / "plain"), tuned.built(tmp_path / "by the store", tuned.store)
    assert _text(tmp_path / "by the store" / "prog") < _text(tmp_path / "plain" / "prog")
    assert not plain
    assert all(store["exact"] and not store["unmatched"] for store in told if store["applied"])
    assert sum(store["applied"] for store in told) > 0

    # A second run tries nothing again: it links each program twice for the sizes.
    compiles = tuned.compiler.compiles
    assert tuned.tune(capfd) == (count, before, after)
    assert tuned.compiler.compiles <= compiles + links


def test_a_search_at_link_time_begins_with_the_passes_that_a_policy_chooses(
    tuned: Tuned, capfd: pytest.CaptureFixture[str]
) -> None:
    # LLVM's own decisions, the policy, and its decisions with all others held.
    words = ("--corpus", tuned.corpus, "--lto", tuned.mode, "--from", "size", "--budget", 3)
    assert tuned.compiler.tune(tuned.store, *words) == 0
    assert "the best before stands" not in capfd.readouterr().out
    tried = searches(tuned.store)
    for search in tried.values():
        assert (search.spent, search.best_text <= search.default_text) == (3, True)
        assert tuned.mode == "thin" or all(
            map(is_codegen, (each for its in search.decided.passes.values() for each in its))
        )
    assert any(search.decided.passes for search in tried.values())


@pytest.mark.parametrize("tuned", ["thin"], indirect=True)
def test_the_lines_at_the_end_of_a_builds_search_apply_its_store_at_link_time(tuned: Tuned, launcher: str) -> None:
    words = ("--lto", "thin", "--budget", "4", "--json", "--plugins", str(tuned.plugin.parent))
    said = subprocess.run(
        command("autotune", *words, "--", "make", "-B", "prog"),
        cwd=tuned.project,
        env={**os.environ, "POLICYBRIDGE_LAUNCHER": launcher},
        capture_output=True,
        check=True,
    ).stdout
    told = json.loads(said)
    assert told["programs"] == 2
    assert told["text"]["after"] < told["text"]["before"]
    statistics = tuned.project / "%m.json"
    given = {**os.environ, "POLICYBRIDGE_STATS": str(statistics)}
    subprocess.run(told["apply"][0], shell=True, cwd=tuned.project, env=given, check=True)
    assert sum(json.loads(path.read_text())["store"]["applied"] for path in tuned.project.glob("*.c.json")) > 0


@pytest.mark.parametrize("tuned", ["full"], indirect=True)
def test_decisions_with_which_a_program_is_larger_are_taken_back(
    tuned: Tuned, capfd: pytest.CaptureFixture[str]
) -> None:
    _, before, _ = tuned.tune(capfd, budget=1)
    database = sqlite3.connect(tuned.store.with_name(f"{tuned.store.name}.work") / "progress.db")
    for key, data in database.execute("SELECT module, search FROM searches").fetchall():
        search = msgspec.msgpack.decode(data, type=Search)
        # As if the smallest object were one in which nothing is inlined.
        search.best = Decided({site.key: False for sites in search.sites.values() for site in sites})
        search.best_object = "a made-up one"
        database.execute("UPDATE searches SET search = ? WHERE module = ?", (msgspec.msgpack.encode(search), key))
    database.commit()
    database.close()
    count, again, after = tuned.tune(capfd, budget=1)
    assert (count, again) == (2, before)
    assert after <= before
    refused = {name for name, search in searches(tuned.store).items() if search.is_refused}
    assert refused
    assert not refused & {section.heading.path for section in read_store(tuned.store).sections}


def test_a_corpus_keeps_the_names_that_a_list_lets_a_library_show_and_those_that_a_program_must_show(
    corpus: Corpus,
) -> None:
    exports = {program.name: program.exports for program in corpus.programs}
    assert set(exports["libboxes.so"] or ()) >= {"keep", "destroy", "release", "make"}
    assert exports["prog"] is not None
    assert "one_a" not in exports["prog"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--module", "x"), "--lto is about whole programs: give --program PROJECT/NAME instead of --module"),
        (("--linked",), "leave out --linked"),
        (("--compiler", "zig"), "--lto needs the plugin policybridge-inliner-"),
    ],
)
def test_what_lto_cannot_do_is_refused_before_anything_is_compiled(
    words: tuple[str, ...], said: str, corpus: Corpus, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    tuning = ["autotune", "--store", str(tmp_path / "tuned.db"), "--corpus", str(corpus.folder), "--lto", "full"]
    assert main([*tuning, *words]) == 2
    assert said in capfd.readouterr().err
    assert not (tmp_path / "tuned.db").exists()


def test_a_program_without_main_and_a_flag_of_clang_are_rows_that_say_so(
    native: Target, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    plugin = built_plugin(native, "inliner", MAJOR)
    program = Program("prog", "p", "executable", ("p/a.c",))
    made = write_corpus(tmp_path / "corpus", {"p/a.c": boxes("a")}, [program], compiler=need(f"clang-{MAJOR}"))
    words = ["score", "--corpus", str(made.folder), "--no-cache", "--lto", "full", "--plugins", str(plugin.parent)]
    for candidate, why in (("default", "its modules have no main"), ("flag:-Os", "-Os is an argument of clang")):
        assert main([*words, "--compiler", f"clang-{MAJOR}", "--candidate", candidate, "--baseline", candidate]) == 1
        assert why in " ".join(capfd.readouterr().out.split())


@pytest.mark.parametrize("mode", ["full", "thin"])
def test_a_program_that_cannot_be_linked_is_no_larger_one(
    mode: str, native: Target, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    plugin = built_plugin(native, "inliner", MAJOR)
    program = Program("prog", "p", "executable", ("p/a.c",))
    made = write_corpus(tmp_path / "corpus", {"p/a.c": boxes("a")}, [program], compiler=need(f"clang-{MAJOR}"))
    words = ["autotune", "--store", str(tmp_path / "tuned.db"), "--corpus", str(made.folder), "--lto", mode]
    main([*words, "--compiler", f"clang-{MAJOR}", "--plugins", str(plugin.parent), "--budget", "4"])
    said = capfd.readouterr().out
    assert said.count("p/prog") == said.count("its modules have no main") == 1
    assert "was larger" not in said


def test_a_corpus_without_programs_is_told_how_to_get_some(
    native: Target, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    plugin = built_plugin(native, "inliner", MAJOR)
    made = write_corpus(tmp_path / "corpus", {"p/a.c": boxes("a")}, compiler=need(f"clang-{MAJOR}"))
    words = ["score", "--corpus", str(made.folder), "--lto", "thin", "--candidate", "default", "--no-cache"]
    assert main([*words, "--compiler", f"clang-{MAJOR}", "--plugins", str(plugin.parent)]) == 2
    assert "record a build that links one" in capfd.readouterr().err


def _text(program: Path) -> int:
    return ObjectFile.read(program).text

"""``policybridge autotune`` where there is a plugin for the compiler."""

import hashlib
import os
import re
import subprocess
from pathlib import Path

import pytest

from policybridge_client.decisions import Heading, Section, read_store
from policybridge_train.compiling.compilation import ByDecisions
from policybridge_train.compiling.compiler import Compiler, CompileTool
from policybridge_train.compiling.job import compile_module
from policybridge_train.corpus.description import Corpus
from policybridge_train.learning.trees import Trees, to_onnx
from policybridge_train.tuning.flips import Decided
from policybridge_train.tuning.search import TUNED
from tests.conftest import command
from tests.native.llvm.plugins import need
from tests.training.corpora import write_corpus
from tests.training.tuning.autotuning import CountedCompiler, rename_oddly, searches
from tests.training.tuning.boxes import boxes
from tests.training.walk import walks

_CRASHES = 'case "$*" in *-policybridge-decisions=*/store*) kill -SEGV $$;; esac'
_MAKEFILE = """
all: one.o two.o
one.o: src\\ dir/one.c
\t{clang} -Oz -c "src dir/one.c" -o one.o
two.o: src\\ dir/two.c
\t{clang} -Oz -c "src dir/two.c" -o two.o
"""

_EAGER_TOML = """
backend = "onnx"

[settings.pack.observation]
features = ["cost_estimate", "inlining_default"]
"""

_EAGER = Trees(
    {
        "nodes_treeids": [0],
        "nodes_nodeids": [0],
        "nodes_featureids": [0],
        "nodes_values": [0.0],
        "nodes_modes": ["LEAF"],
        "nodes_truenodeids": [0],
        "nodes_falsenodeids": [0],
        "target_treeids": [0],
        "target_nodeids": [0],
        "target_ids": [0],
        "target_weights": [-20.0],
    }
)
"""Trees that predict of every call that inlining saves 20 bytes."""


@pytest.fixture
def compiler(tmp_path: Path, major: str, plugin: Path) -> CountedCompiler:
    options = ("--plugins", str(plugin.parent), "--budget", "16")
    return CountedCompiler.of(tmp_path / "a compiler", need(f"clang-{major}"), options)


@pytest.fixture
def corpus(tmp_path: Path, major: str) -> Corpus:
    sources = {"p/a.c": boxes("a"), "p/b c.c": boxes("b"), "p/calls nothing.c": "int x;\n"}
    return write_corpus(tmp_path / "a corpus", sources, compiler=need(f"clang-{major}"))


def test_a_step_with_the_plugin_enters_few_files_and_changes_file_seldom(
    tmp_path: Path, major: str, plugin: Path
) -> None:
    step = walks(tmp_path, need(f"clang-{major}"), str(plugin.parent))["autotune step"]
    assert len(step.files) <= 18, step.files
    assert step.changes <= 125, step.files


def test_a_corpus_becomes_smaller_and_the_store_alone_makes_the_same_objects_again(
    tmp_path: Path, corpus: Corpus, compiler: CountedCompiler, major: str, plugin: Path
) -> None:
    rename_oddly(corpus.modules[1], "drop", f"clang-{major}")
    store = tmp_path / "tuned.db"
    assert compiler.tune(store, "--corpus", corpus.folder) == 0
    compiles, found = compiler.compiles, searches(store)
    sections = {section.heading.path: section for section in read_store(store).sections}
    assert set(sections) == {"p/a.c", "p/b c.c"}
    tool = CompileTool(Compiler.find(f"clang-{major}"), plugins=plugin.parent)
    for module in corpus.modules:
        search = found[module.name]
        section = sections.get(module.name, Section(Heading(int(major), "Oz", "site", None, module.name)))
        again = compile_module(tool, module, ByDecisions(section.answers, tuple(section.passes)), TUNED)
        assert (again.digest, again.text) == (search.best_object, search.best_text)
        assert search.best_text < search.default_text or module.name == "p/calls nothing.c"
    assert compiler.tune(store, "--corpus", corpus.folder) == 0
    assert compiler.compiles == compiles


def test_programs_become_smaller_and_a_second_run_compiles_nothing(
    tmp_path: Path, corpus: Corpus, compiler: CountedCompiler, capfd: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "tuned.db"
    assert compiler.tune(store, "--corpus", corpus.folder, "--linked") == 0
    before, after = _linked(capfd.readouterr().out)
    assert after < before
    compiles = compiler.compiles
    assert compiler.tune(store, "--corpus", corpus.folder, "--linked") == 0
    assert _linked(capfd.readouterr().out) == (before, after)
    assert compiler.compiles == compiles


def _linked(said: str) -> tuple[int, int]:
    found = re.search(r"linked: 1 programs, text ([\d,]+), tuned ([\d,]+) ", said)
    assert found, said
    return int(found[1].replace(",", "")), int(found[2].replace(",", ""))


def test_a_module_whose_tuned_build_crashes_the_compiler_keeps_the_default(
    tmp_path: Path, corpus: Corpus, compiler: CountedCompiler, major: str, capfd: pytest.CaptureFixture[str]
) -> None:
    crashing = CountedCompiler.of(tmp_path / "crashing", f"clang-{major}", compiler.options, _CRASHES)
    store = tmp_path / "tuned.db"
    assert crashing.tune(store, "--corpus", corpus.folder) == 0
    assert "p/a.c: crashed: signal 11; the best before stands" in capfd.readouterr().out
    assert not store.exists() or not read_store(store).sections
    for search in searches(store).values():
        assert (search.best, search.best_text) == (Decided(), search.default_text)


@pytest.fixture
def delegated(launcher: str, plugin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have ``policybridge run`` start the launcher, which finds the plugin."""
    monkeypatch.setenv("POLICYBRIDGE_PLUGINS", str(plugin.parent))
    monkeypatch.setenv("POLICYBRIDGE_LAUNCHER", launcher)


@pytest.mark.usefixtures("delegated")
def test_what_a_build_compiles_is_tuned_and_the_source_with_the_store_gives_that_object(
    tmp_path: Path, compiler: CountedCompiler, major: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = _project(tmp_path, major)
    monkeypatch.chdir(folder)
    store = folder / "tuned.db"
    assert compiler.tune(store, "--", "make") == 0
    assert {section.heading.path for section in read_store(store).sections} == {"src dir/one.c", "src dir/two.c"}
    for module, search in searches(store).items():
        made = folder / "made.o"
        words = ["-Oz", "-c", f"src dir/{Path(module).stem}.c", "-o", str(made)]
        subprocess.run(command("run", "--decisions", str(store), "--", f"clang-{major}", *words), check=True)
        assert hashlib.sha256(made.read_bytes()).hexdigest() == search.best_object
    # The folder of the search is none for the repository.
    assert (folder / "tuned.db.work" / ".gitignore").read_text() == "*\n"


def test_a_build_without_optimisation_is_told_that_there_is_nothing_to_tune(
    tmp_path: Path,
    compiler: CountedCompiler,
    major: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    folder = _project(tmp_path, major)
    (folder / "Makefile").write_text(_MAKEFILE.format(clang=f"clang-{major}").replace("-Oz", "-O0"))
    monkeypatch.chdir(folder)
    assert compiler.tune(folder / "tuned.db", "--", "make") == 2
    assert "the build does not optimise (-O0), so there is nothing to decide" in capfd.readouterr().err


def test_a_source_that_was_renamed_is_tuned_under_its_new_name_alone(
    tmp_path: Path,
    compiler: CountedCompiler,
    major: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    folder = _project(tmp_path, major)
    monkeypatch.chdir(folder)
    assert compiler.tune(folder / "tuned.db", "--budget", "2", "--", "make") == 0
    (folder / "src dir" / "two.c").rename(folder / "src dir" / "new.c")
    (folder / "Makefile").write_text((folder / "Makefile").read_text().replace("two", "new"))
    capfd.readouterr()
    assert compiler.tune(folder / "tuned.db", "--budget", "2", "--", "make") == 0
    assert re.search(r"^a project +2 ", capfd.readouterr().out, re.MULTILINE)


def test_after_an_edit_of_a_line_two_compiles_of_its_file_keep_what_was_won(
    tmp_path: Path, compiler: CountedCompiler, major: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = _project(tmp_path, major)
    monkeypatch.chdir(folder)
    store = folder / "tuned.db"
    assert compiler.tune(store, "--", "make") == 0
    compiles, before = compiler.compiles, _decisions(store)
    source = folder / "src dir" / "one.c"
    source.write_text(source.read_text().replace("if (n > 3)", "if (n > 4)"))
    os.utime(source, (2e9, 2e9))
    assert compiler.tune(store, "--", "make") == 0
    assert compiler.compiles == compiles + 2
    after = _decisions(store)
    assert after["src dir/two.c"] == before["src dir/two.c"]
    kept = before["src dir/one.c"].items() & after["src dir/one.c"].items()
    assert len(kept) >= 0.95 * len(before["src dir/one.c"]) > 0


def _project(tmp_path: Path, major: str) -> Path:
    folder = tmp_path / "a project"
    (folder / "src dir").mkdir(parents=True)
    for name in ("one", "two"):
        (folder / "src dir" / f"{name}.c").write_text(boxes(name))
    (folder / "Makefile").write_text(_MAKEFILE.format(clang=need(f"clang-{major}")))
    return folder


def _decisions(store: Path) -> dict[str, dict[str, bool]]:
    return {section.heading.path: dict(section.answers) for section in read_store(store).sections}


def test_a_search_begins_with_a_policys_decisions_where_they_make_functions_smaller(
    tmp_path: Path, corpus: Corpus, compiler: CountedCompiler
) -> None:
    policy = tmp_path / "policies" / "eager"
    (policy / "1").mkdir(parents=True)
    (policy / "policy.toml").write_text(_EAGER_TOML)
    (policy / "1" / "model.onnx").write_bytes(to_onnx(_EAGER, ("cost_estimate", "own"), "own", 1.0, "inline"))
    store = tmp_path / "tuned.db"
    started = ("--from", "eager", "--repository", tmp_path / "policies", "--budget", 3, "--module", "*a.c*")
    assert compiler.tune(store, "--corpus", corpus.folder, *started) == 0
    search = searches(store)["p/a.c"]
    # The default, the policy, and its decisions with all others held.
    assert search.spent == 3
    assert search.best_text < search.default_text


def test_a_search_begins_with_the_passes_that_a_policy_chooses_and_leaves_inlining_where_only_passes_are_decided(
    tmp_path: Path, corpus: Corpus, compiler: CountedCompiler
) -> None:
    store = tmp_path / "tuned.db"
    started = ("--from", "size", "--decide", "passes", "--budget", 3, "--module", "*a.c*")
    assert compiler.tune(store, "--corpus", corpus.folder, *started) == 0
    search = searches(store)["p/a.c"]
    assert search.spent == 3
    assert search.best_text < search.default_text
    assert search.best.passes
    assert not search.best.inlining


def test_a_search_begins_with_a_policys_passes_where_there_is_nothing_to_inline(
    tmp_path: Path, compiler: CountedCompiler, major: str, capfd: pytest.CaptureFixture[str]
) -> None:
    source = "int g(int);\nint f(int x) { int s = 0; for (int i = 0; i < x; ++i) s += g(i) * x; return s; }\n"
    corpus = write_corpus(tmp_path / "corpus", {"p/a.c": source}, compiler=need(f"clang-{major}"))
    store = tmp_path / "tuned.db"
    assert compiler.tune(store, "--corpus", corpus.folder, "--from", "size", "--budget", 3) == 0
    assert "the best before stands" not in capfd.readouterr().out
    assert searches(store)["p/a.c"].spent == 3


def test_a_policy_that_is_not_there_is_told_and_llvm_s_own_decisions_are_tuned(
    tmp_path: Path, corpus: Corpus, compiler: CountedCompiler, capfd: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "tuned.db"
    assert compiler.tune(store, "--corpus", corpus.folder, "--from", "nobody", "--budget", 6, "--module", "*a.c*") == 0
    assert "nobody" in capfd.readouterr().out
    assert searches(store)["p/a.c"].best_text < searches(store)["p/a.c"].default_text

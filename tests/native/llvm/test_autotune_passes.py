"""The passes that ``policybridge autotune`` chooses, with real compilers."""

import re
from pathlib import Path

import pytest

from policybridge_client.cli import main
from policybridge_client.decisions import ALL_FUNCTIONS, function_key, read_store
from policybridge_train.compiling.compilation import ByDecisions, Plain
from policybridge_train.compiling.compiler import Compiler, CompileTool
from policybridge_train.compiling.job import compile_module
from policybridge_train.corpus.description import Corpus
from policybridge_train.tuning.search import TUNED
from tests.native.llvm.plugins import need
from tests.training.corpora import write_corpus
from tests.training.tuning.autotuning import CountedCompiler, rename_oddly, searches

LOOPS = """
int get(int);
int sum(long *a, int n) { int s = 0; for (int i = 0; i < n; i++) s += (a[i] ^ 0x123456789abcdefL) + get(i); return s; }
static __attribute__((noinline)) int last(long *a, int n) {
  int s = 0;
  for (int i = 0; i < n; i++) s += (a[i] ^ 0x123456789abcdefL) + get(i);
  return s;
}
int most(long *a, int n) {
  int s = 0;
  for (int i = 0; i < n; i++) if (a[i] & 1) s += get(i); else s ^= get(s);
  return s + last(a, n) + last(a + 1, s);
}
"""


@pytest.fixture
def corpus(tmp_path: Path, major: str) -> Corpus:
    return write_corpus(tmp_path / "corpus", {"p/a.c": LOOPS}, compiler=need(f"clang-{major}"))


@pytest.fixture
def compiler(tmp_path: Path, major: str, plugin: Path, corpus: Corpus) -> CountedCompiler:
    # One compile at a time: which of two ends first decides which choices the next one tries.
    options = ("--jobs", "1", "--plugins", str(plugin.parent), "--budget", "14", "--corpus", str(corpus.folder))
    return CountedCompiler.of(tmp_path / "compiler", need(f"clang-{major}"), options)


def test_a_module_is_made_smaller_by_its_passes_and_the_store_makes_the_same_object_again(
    tmp_path: Path, major: str, plugin: Path, compiler: CountedCompiler, corpus: Corpus
) -> None:
    (module,) = corpus.modules
    rename_oddly(module, "last", f"clang-{major}")
    store = tmp_path / "tuned.db"
    assert compiler.tune(store) == 0
    (section,) = read_store(store).sections
    assert function_key("last\udcff%\n") in {choice.key for choice in section.passes}
    tool = CompileTool(Compiler.find(f"clang-{major}"), plugins=plugin.parent)
    plain = compile_module(tool, module, Plain(), TUNED)
    tuned = compile_module(tool, module, ByDecisions(section.answers, tuple(section.passes)), TUNED)
    (search,) = searches(store).values()
    # One compile more tells whether this compiler loads the plugin.
    assert compiler.compiles <= search.spent + 1 <= 14 + 1
    assert (tuned.digest, tuned.text) == (search.best_object, search.best_text)
    assert 0 < tuned.text < plain.text
    # Another search begins with the store's choices: their compile is its second.
    (tmp_path / "tuned.db.work" / "progress.db").unlink()
    assert compiler.tune(store, "--budget", "2") == 0
    assert read_store(store).sections[0].passes == section.passes


def test_only_the_kinds_that_are_asked_for_are_decided(tmp_path: Path, compiler: CountedCompiler) -> None:
    store = tmp_path / "tuned.db"
    assert compiler.tune(store, "--decide", "inline") == 0
    assert not store.exists() or not any(section.passes for section in read_store(store).sections)
    assert compiler.tune(store, "--decide", "passes") == 0
    (section,) = read_store(store).sections
    assert section.passes
    assert not section.decisions


def test_llvm_alone_decides_about_spared_functions(tmp_path: Path, compiler: CountedCompiler) -> None:
    store, sum_, most = tmp_path / "tuned.db", function_key("sum"), function_key("most")
    assert compiler.tune(store) == 0
    assert {sum_, most} <= {choice.key for choice in read_store(store).sections[0].passes}
    # The store has decisions about it by now.
    assert compiler.tune(store, "--spare", "su?") == 0
    choices = read_store(store).sections[0].passes
    assert most in {choice.key for choice in choices}
    assert {choice.key for choice in choices} & {sum_, ALL_FUNCTIONS} == set()


def test_programs_become_smaller_by_passes(
    tmp_path: Path, compiler: CountedCompiler, capfd: pytest.CaptureFixture[str]
) -> None:
    assert compiler.tune(tmp_path / "tuned.db", "--linked", "--decide", "passes") == 0
    found = re.search(r"linked: 1 programs, text ([\d,]+), tuned ([\d,]+) ", capfd.readouterr().out)
    assert found
    assert int(found[2].replace(",", "")) < int(found[1].replace(",", ""))


def test_passes_need_the_plugin(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    compiler = CountedCompiler.of(tmp_path / "compiler", "zig")
    assert compiler.tune(tmp_path / "tuned.db", "--decide", "passes", "--corpus", tmp_path) == 2
    assert "passes are chosen by the plugin policybridge-inliner-" in capsys.readouterr().err


@pytest.mark.parametrize("kinds", ["", "inline,", "spilling"])
def test_an_unknown_kind_is_refused_with_the_known_ones(kinds: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["autotune", "--store", "tuned.db", "--corpus", "corpus", "--decide", kinds])
    assert "give inline or passes" in capsys.readouterr().err

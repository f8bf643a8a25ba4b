"""``policybridge autotune --passes`` with real compilers."""

from pathlib import Path

import pytest

from policybridge_client.decisions import read_store
from policybridge_train.compiling.compiler import Compiler
from policybridge_train.compiling.decider import Plain
from policybridge_train.compiling.decisions import ByDecisions
from policybridge_train.compiling.job import compile_module
from policybridge_train.compiling.tool import CompileTool
from policybridge_train.tuning.search import TUNED
from tests.native.llvm.plugins import need
from tests.training.corpora import write_corpus
from tests.training.tuning.autotuning import CountedCompiler

LOOPS = """
int get(int);
int sum(long *a, int n) { int s = 0; for (int i = 0; i < n; i++) s += (a[i] ^ 0x123456789abcdefL) + get(i); return s; }
int most(long *a, int n) {
  int s = 0;
  for (int i = 0; i < n; i++) if (a[i] & 1) s += get(i); else s ^= get(s);
  return s;
}
"""


def test_a_module_is_made_smaller_by_its_passes_and_the_store_makes_the_same_size_again(
    tmp_path: Path, major: str, plugin: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus = write_corpus(tmp_path / "corpus", {"p/a.c": LOOPS}, compiler=need(f"clang-{major}"))
    options = ("--plugins", str(plugin.parent), "--budget", "2", "--corpus", str(corpus.folder))
    compiler = CountedCompiler.of(tmp_path / "compiler", need(f"clang-{major}"), options)
    store = tmp_path / "tuned.db"
    assert compiler.tune(store, "--passes", 12) == 0
    assert "1 of 1 modules smaller" in capsys.readouterr().out
    (section,) = read_store(store).sections
    assert section.passes
    tool = CompileTool(Compiler.find(f"clang-{major}"), plugins=plugin.parent)
    (module,) = corpus.modules
    plain = compile_module(tool, module, Plain(), TUNED)
    tuned = compile_module(tool, module, ByDecisions(section.answers, tuple(section.passes)), TUNED)
    assert 0 < tuned.text < plain.text
    # A later search for inlining that finds the same keeps the choices.
    assert compiler.tune(store, "--budget", "3") == 0
    assert read_store(store).sections[0].passes == section.passes


def test_passes_are_not_chosen_for_linked_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    compiler = CountedCompiler.of(tmp_path / "compiler", need("clang-22"))
    assert compiler.tune(tmp_path / "tuned.db", "--linked", "--passes", "4", "--corpus", tmp_path) == 2
    assert "give it without --linked" in capsys.readouterr().err

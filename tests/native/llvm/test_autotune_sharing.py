"""A search that tries ``set ipra``, by which functions of a module know each other's registers; real compilers."""

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from policybridge_client.decisions import ALL_FUNCTIONS, PassChoice, read_store
from policybridge_train.compiling.compiler import Compiler, CompileTool
from policybridge_train.compiling.decisions import ByDecisions
from policybridge_train.compiling.job import compile_module
from policybridge_train.corpus.description import Corpus
from policybridge_train.tuning.search import TUNED
from tests.native.llvm.plugins import need
from tests.training.corpora import write_corpus
from tests.training.tuning.autotuning import CountedCompiler, searches

SHARED = PassChoice(ALL_FUNCTIONS, "set", "ipra")
HELPED = """
static __attribute__((noinline)) int small(int a) { return a * 3 + 1; }
int one(int a, int b, int c, int d) { return small(a) + small(b) * c + small(c) * d + small(d) * a * b; }
"""
"""A caller that need not spare registers which `small` leaves alone."""

ALONE = "int one(int *a, int n) { int s = 0; for (int i = 0; i < n; i++) s += a[i] * 3 + 1; return s; }\n"
PATCHED = HELPED.replace("int one", "__attribute__((patchable_function_entry(2))) int one")

Tuned = Callable[..., tuple[Corpus, CountedCompiler, Path]]


@pytest.fixture
def tuned(tmp_path: Path, major: str, plugin: Path) -> Tuned:
    """Tune one module; the file `shared` gets a line for each compile with the choice."""

    def tune(
        source: str, *options: str, triple: str = "x86_64-unknown-linux-gnu"
    ) -> tuple[Corpus, CountedCompiler, Path]:
        corpus = write_corpus(tmp_path / "corpus", {"p/a.c": source}, compiler=need(f"clang-{major}"), triple=triple)
        noted = (
            'for word in "$@"; do case $word in -policybridge-decisions=*) '
            f'grep -q "set ipra" "${{word#*=}}" && echo . >> {shlex.quote(str(tmp_path / "shared"))};; esac; done'
        )
        words = ("--jobs", "1", "--plugins", str(plugin.parent), "--corpus", str(corpus.folder), *options)
        compiler = CountedCompiler.of(tmp_path / "compiler", need(f"clang-{major}"), words, noted)
        (tmp_path / "shared").touch()
        assert compiler.tune(tmp_path / "tuned.db") == 0
        return corpus, compiler, tmp_path / "tuned.db"

    return tune


def choices_in(store: Path) -> set[PassChoice]:
    return {choice for section in read_store(store).sections for choice in section.passes} if store.exists() else set()


@pytest.mark.parametrize("budget", ["12", "24"])
def test_registers_are_shared_where_that_helps_and_the_store_makes_the_measured_object(
    tuned: Tuned, major: str, plugin: Path, budget: str
) -> None:
    corpus, compiler, store = tuned(HELPED, "--budget", budget)
    assert SHARED in choices_in(store)
    (search,) = searches(store).values()
    # One compile more tells whether this compiler loads the plugin.
    assert compiler.compiles <= search.spent + 1 <= int(budget) + 1
    (module,), (section,) = corpus.modules, read_store(store).sections
    tool = CompileTool(Compiler.find(f"clang-{major}"), plugins=plugin.parent)
    made = compile_module(tool, module, ByDecisions(section.answers, tuple(section.passes)), TUNED)
    assert (made.digest, made.text) == (search.best_object, search.best_text)
    assert made.text < search.default_text


def test_shared_registers_that_do_not_help_are_tried_once_and_dropped(tmp_path: Path, tuned: Tuned) -> None:
    _, compiler, store = tuned(ALONE, "--budget", "12")
    assert len((tmp_path / "shared").read_text().splitlines()) == 1
    assert SHARED not in choices_in(store)
    assert compiler.compiles <= 12 + 1


@pytest.mark.parametrize(
    ("source", "triple", "options"),
    [
        (PATCHED, "x86_64-unknown-linux-gnu", ()),
        (HELPED, "i386-unknown-linux-gnu", ()),
        (HELPED, "x86_64-unknown-linux-gnu", ("--decide", "inline")),
        (HELPED, "x86_64-unknown-linux-gnu", ("--spare", "small")),
        (HELPED, "x86_64-unknown-linux-gnu", ("--budget", "11")),
    ],
)
def test_no_compile_is_spent_on_shared_registers_where_they_have_no_place(
    tmp_path: Path, tuned: Tuned, source: str, triple: str, options: tuple[str, ...]
) -> None:
    tuned(source, *(options or ("--budget", "12")), triple=triple)
    assert (tmp_path / "shared").read_text() == ""

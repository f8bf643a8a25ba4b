"""Inlining for speed as a task of training: real programs, whose instructions valgrind counts."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from policybridge_core.errors import InvalidError, NotFoundError
from policybridge_train.compiling.module import Program
from policybridge_train.tasks.inline import unit_of
from policybridge_train.tasks.inline_speed import InlineForSpeed
from policybridge_train.tasks.task import Asking, Case
from policybridge_train.trajectories.trajectory import read_back
from tests.conftest import running_server
from tests.frameworks import require
from tests.native.llvm.plugins import need, write_policies
from tests.training.algorithms.runs import iterations, train
from tests.training.corpora import write_corpus

_SOURCES = {
    "p/main.c": "int work(int);\nint main(int n, char **w) { return w && n > 9 ? n : work(3000) & 0; }\n",
    "p/work.c": "static int twice(int v) { return 2 * v + (v >> 3); }\nstatic int often(int v) { int s = v;\n"
    "  for (int i = 0; i < 9; i++) s += twice(s) ^ twice(i); return s; }\n"
    "int work(int n) { int s = 0; for (int i = 0; i < n; i++) s += often(i) + twice(s); return s; }\n",
}


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[str, Path]]:
    with TemporaryDirectory(prefix="pb-") as name:
        folder = Path(name)
        write_policies(folder / "policies")
        with running_server(folder / "policies", folder, "--ledger", folder / "ledger.db") as server:
            yield server.socket, folder / "ledger.db"


@pytest.fixture
def corpus(tmp_path: Path, major: str) -> Path:
    programs = [Program("build/prog", "p", "executable", tuple(_SOURCES))]
    write_corpus(tmp_path / "a corpus", _SOURCES, programs, compiler=need(f"clang-{major}"))
    (tmp_path / "mine.toml").write_text('[[benchmark]]\nproject = "p"\nprogram = "prog"\narguments = ["input"]\n')
    return tmp_path / "a corpus"


def test_a_program_that_inlines_nothing_takes_more_instructions_and_each_count_is_the_same_again(
    corpus: Path, plugin: Path, major: str, served: tuple[str, Path]
) -> None:
    need("valgrind")
    benchmarks = str(corpus.parent / "mine.toml")
    task = InlineForSpeed(f"clang-{major}", str(plugin.parent), benchmarks=benchmarks)
    (case,) = task.cases(corpus)
    assert case == Case("p/build/prog", "p", "c")
    plain, echo, never = (
        task.run(case, asking) for asking in (None, Asking(served[0], "echo"), Asking(served[0], "never"))
    )
    assert [one.failure for one in (plain, echo, never)] == [""] * 3
    assert echo.totals == plain.totals
    assert echo.costs == plain.costs
    assert never.totals["instructions"] > 1.5 * plain.totals["instructions"]
    work, main = unit_of("work"), unit_of("main")
    assert never.totals["instructions"] >= never.costs[main] > never.costs[work] > plain.costs[work] > 30000
    assert unit_of("twice") in never.costs.keys() - plain.costs.keys()
    trajectory = read_back(task, case, never, served[1])
    assert work in trajectory.units
    own = InlineForSpeed(f"clang-{major}", str(plugin.parent), benchmarks=benchmarks, counted="own")
    own.cases(corpus)
    alone = own.run(case, None).costs
    assert alone[main] < plain.costs[main] - plain.costs[work] + 1
    assert sum(alone.values()) <= plain.totals["instructions"]


def test_what_is_missing_or_wrong_is_told(corpus: Path, plugin: Path, major: str, tmp_path: Path) -> None:
    need("valgrind")
    options = {"compiler": f"clang-{major}", "plugins": str(plugin.parent)}
    with pytest.raises(InvalidError, match=r"no program with a benchmark.*zlib/minigzip"):
        InlineForSpeed(**options).cases(corpus)
    with pytest.raises(InvalidError, match="counted=fast"):
        InlineForSpeed(**options, counted="fast")
    (tmp_path / "broken.toml").write_text('[[benchmark]]\nproject = "p"\n')
    for name in ("broken.toml", "away.toml"):
        with pytest.raises(InvalidError, match=r"\[\[benchmark\]\]"):
            InlineForSpeed(**options, benchmarks=str(tmp_path / name))
    with pytest.raises(NotFoundError, match="no program"):
        InlineForSpeed(**options).run(Case("away", "p"), None)
    (tmp_path / "bad.toml").write_text(
        '[[benchmark]]\nproject = "p"\nprogram = "prog"\narguments = ["1", "2", "3", "4", "5", "6", "7", "8", "9"]\n'
    )
    failing = InlineForSpeed(**options, benchmarks=str(tmp_path / "bad.toml"))
    assert "status 10" in failing.run(failing.cases(corpus)[0], None).failure


@pytest.fixture
def speed(tmp_path: Path, major: str, plugin: Path) -> tuple[str, ...]:
    """Make a corpus of one project with two programs; give the words of a run on them."""
    sources = {**_SOURCES, **{name.replace("p/", "p/other "): text for name, text in _SOURCES.items()}}
    halves = [tuple(name for name in sources if (" " in name) is other) for other in (False, True)]
    programs = [
        Program(f"build/{name}", "p", "executable", half) for name, half in zip(("one", "two"), halves, strict=True)
    ]
    write_corpus(tmp_path / "corpus", sources, programs, compiler=need(f"clang-{major}"))
    rows = [f'[[benchmark]]\nproject = "p"\nprogram = "{name}"\n' for name in ("one", "two")]
    (tmp_path / "mine.toml").write_text("".join(rows))
    corpus, benchmarks = str(tmp_path / "corpus"), f"benchmarks={tmp_path / 'mine.toml'}"
    compiling = ("--compiler", f"clang-{major}", "--plugins", str(plugin.parent))
    return ("--corpus", corpus, *compiling, "--option", benchmarks, "--set", "iterations=1")


@pytest.mark.parametrize(
    ("algorithm", "settings"),
    [
        ("credit", ("compiles=2", "trees=20", "least=0.01")),
        ("es", ("cases=1", "sets=2", "pairs=1")),
        ("ppo", ("cases=1", "draws=2", "epochs=1")),
    ],
)
def test_speed_is_trained_on_the_two_programs_of_one_project(
    tmp_path: Path, speed: tuple[str, ...], algorithm: str, settings: tuple[str, ...]
) -> None:
    need("valgrind")
    if algorithm == "ppo":
        require("torch")
    words = [word for each in settings for word in ("--set", each)]
    status, said = train(algorithm, "inline-speed", tmp_path / "run", *speed, *words)
    assert status == 0, said
    assert "held out by file" in said
    done = iterations(tmp_path / "run")
    assert [each.number for each in done] == [0, 1]
    assert all(totals["instructions"] > 30000 for each in done for totals in each.costs.values())


def test_a_flip_of_a_program_has_its_credit_in_instructions_of_the_functions_alone(
    corpus: Path, plugin: Path, major: str
) -> None:
    need("valgrind")
    task = InlineForSpeed(f"clang-{major}", str(plugin.parent), benchmarks=str(corpus.parent / "mine.toml"))
    (case,) = task.cases(corpus)
    plain = task.measured(case, {})
    again = task.measured(case, {})
    assert (again.totals, again.costs) == (plain.totals, plain.costs)
    assert {site.callee for site in plain.sites} >= {"twice", "often"}
    called = task.measured(case, {site.key: False for site in plain.sites if site.callee == "twice"})
    functions = ("twice", "often", "work")
    cost = sum(called.costs.get(name, 0) for name in functions) - sum(plain.costs.get(name, 0) for name in functions)
    assert cost == called.totals["instructions"] - plain.totals["instructions"] > 0

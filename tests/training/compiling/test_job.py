"""One compile as a job: what is repeated, and what comes with the result."""

import hashlib
from pathlib import Path

import pytest

from policybridge_core.errors import UnavailableError
from policybridge_train.compiling.compilation import Plain
from policybridge_train.compiling.compiler import Compiler, CompileTool
from policybridge_train.compiling.job import FarmCompiler, Wanted, retried
from policybridge_train.compiling.module import Module
from policybridge_train.compiling.result import CompileResult
from policybridge_train.farms.local import LocalFarm
from policybridge_train.objects.elf import ObjectFile
from policybridge_train.processes.process import Running, Status
from tests.training.corpora import write_corpus
from tests.training.tuning.autotuning import CountedCompiler

_KILLED = CompileResult(status=Status.CRASHED, signal=9)


@pytest.fixture
def module(tmp_path: Path) -> Module:
    text = "int sink(int);\nstatic int f(int x) { return sink(x); }\nint g(int x) { return f(x) + f(x + 1); }\n"
    (only,) = write_corpus(tmp_path / "corpus", {"p/a.c": text}).modules
    return only


def compiled(compiler: CountedCompiler, module: Module, wanted: Wanted) -> CompileResult:
    recipe = CompileTool(Compiler.find(str(compiler.path)), interactive=True).recipe
    return FarmCompiler(LocalFarm(), recipe).compile(module, Plain(), wanted)


def test_a_compiler_that_is_killed_from_outside_does_not_change_the_result(tmp_path: Path, module: Module) -> None:
    quiet = CountedCompiler.of(tmp_path / "quiet", "zig")
    disturbed = CountedCompiler.of(tmp_path / "disturbed", "zig", extra="test $compiles -gt 2 || kill -KILL $$")
    first, second = (compiled(one, module, Wanted(units=dict)) for one in (quiet, disturbed))
    assert (quiet.compiles, disturbed.compiles) == (1, 3)
    assert first.ok
    assert (second.digest, second.totals, second.costs) == (first.digest, first.totals, first.costs)


@pytest.mark.parametrize("extra", ["exit 1", "kill -SEGV $$"])
def test_a_compiler_that_fails_by_itself_is_not_started_again(tmp_path: Path, module: Module, extra: str) -> None:
    failing = CountedCompiler.of(tmp_path / "failing", "zig", extra=extra)
    assert not compiled(failing, module, Wanted()).ok
    assert failing.compiles == 1


def test_a_result_has_what_was_wanted_and_nothing_else(tmp_path: Path, module: Module) -> None:
    compiler = CountedCompiler.of(tmp_path / "clang", "zig")
    made = compiled(compiler, module, Wanted(("exec", "spills"), units=dict, keep=True))
    whole = ObjectFile(made.content)
    assert made.digest == hashlib.sha256(whole.data).hexdigest()
    assert made.totals.keys() == {"exec", "spills"}
    assert made.exec == whole.exec
    assert made.costs == whole.functions
    bare = compiled(compiler, module, Wanted(("text",)))
    assert (bare.totals, bare.costs, bare.content) == ({"text": whole.text}, {}, b"")


def test_an_objective_that_does_not_exist_is_a_failure_that_names_the_others(tmp_path: Path, module: Module) -> None:
    made = compiled(CountedCompiler.of(tmp_path / "clang", "zig"), module, Wanted(("txt",)))
    assert "unknown objective 'txt'" in made.failure
    assert "spills" in made.failure


@pytest.mark.parametrize(
    ("asks", "result", "times"),
    [
        (False, CompileResult(), 1),
        (False, CompileResult.failed("by itself"), 1),
        (False, CompileResult(status=Status.TIMEOUT), 1),
        (False, _KILLED, 5),
        (True, CompileResult(), 1),
        (True, CompileResult.failed("no advice"), 5),
        (True, CompileResult(status=Status.TIMEOUT), 1),
    ],
)
def test_a_compile_is_repeated_where_something_outside_may_have_made_it_fail(
    asks: bool, result: CompileResult, times: int
) -> None:
    calls: list[bool] = []

    def once(again: bool) -> CompileResult:
        calls.append(again)
        return result

    assert retried(once, Running(), asks=asks) is result
    assert calls == [False, True, True, True, True][:times]


def test_nothing_is_repeated_after_all_compilers_were_ended() -> None:
    running, calls = Running(), list[bool]()

    def once(again: bool) -> CompileResult:
        calls.append(again)
        running.end()
        return _KILLED

    assert retried(once, running, asks=True) is _KILLED
    assert calls == [False]


def test_a_server_that_stays_away_is_an_error_in_the_end() -> None:
    calls: list[bool] = []

    def once(again: bool) -> CompileResult:
        calls.append(again)
        raise UnavailableError("there is no server")

    with pytest.raises(UnavailableError, match="there is no server"):
        retried(once, Running(), asks=True)
    assert len(calls) == 5

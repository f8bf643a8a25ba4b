"""Tasks of training on a machine that has no folder of the run's: they get modules as values."""

import pickle
from pathlib import Path
from shutil import copyfile

import pytest

from policybridge_core.errors import PolicyBridgeError
from policybridge_train.compiling.job import SharedModule
from policybridge_train.compiling.module import Module, Program
from policybridge_train.compiling.result import CompileResult
from policybridge_train.corpus.description import Corpus
from policybridge_train.farms.contract import Machine
from policybridge_train.farms.local import Held, LocalMachine
from policybridge_train.processes.process import Running
from policybridge_train.tasks.recipe import CaseJob, OfModules, TaskRecipe, make_task
from policybridge_train.tasks.task import TASKS, Case, Task
from tests.native.llvm.plugins import need
from tests.training.corpora import write_corpus
from tests.training.tuning.boxes import boxes

pytestmark = pytest.mark.parametrize("major", ["22"])


def compiled(_: Machine, task: Task, case: Case) -> CompileResult:
    return task.run(case, None)


def elsewhere(name: str, options: dict[str, str], corpus: Corpus) -> CompileResult:
    """Compile the first case of a corpus that is gone, with copies of its modules."""
    copies = corpus.folder.parent / "copies"
    copies.mkdir()

    def copy(module: Module) -> SharedModule:
        return SharedModule(module, Held(Path(copyfile(module.bitcode, copies / module.bitcode.name))))

    task = make_task(name, options)
    assert isinstance(task, OfModules)
    case = task.cases(corpus.folder)[0]
    modules = [copy(module) for module in task.modules_of(case) or ()]
    job = CaseJob(TaskRecipe.of(task, name, options, corpus.folder), case, modules, compiled)
    sent = pickle.dumps(job)
    corpus.folder.rename(corpus.folder.with_name("away"))
    there: CaseJob[CompileResult] = pickle.loads(sent)
    return there.run(LocalMachine(Running()))


# Of the others, `tile` has no corpus.
@pytest.mark.parametrize("name", sorted({*TASKS.own} - {"inline-speed", "tile"}))
def test_a_task_of_modules_needs_no_corpus_where_it_compiles(
    tmp_path: Path, plugin: Path, major: str, name: str
) -> None:
    corpus = write_corpus(tmp_path / "a corpus", {"p/a.c": boxes("a")}, compiler=need(f"clang-{major}"))
    plugins = {"plugins": str(plugin.parent)} if name in {"inline", "passes"} else {}
    made = elsewhere(name, {"compiler": f"clang-{major}", **plugins}, corpus)
    assert (made.failure, made.costs != {}) == ("", True)


def test_a_task_of_programs_opens_the_corpus_by_its_path_where_it_compiles(
    tmp_path: Path, plugin: Path, major: str
) -> None:
    need("valgrind")
    programs = [Program("build/prog", "p", "executable", ("p/a.c",))]
    corpus = write_corpus(tmp_path / "a corpus", {"p/a.c": boxes("a")}, programs, compiler=need(f"clang-{major}"))
    (tmp_path / "mine.toml").write_text('[[benchmark]]\nproject = "p"\nprogram = "prog"\narguments = ["input"]\n')
    options = {"compiler": f"clang-{major}", "plugins": str(plugin.parent), "benchmarks": str(tmp_path / "mine.toml")}
    with pytest.raises(PolicyBridgeError, match=str(corpus.folder)):
        elsewhere("inline-speed", options, corpus)

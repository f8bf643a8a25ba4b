"""``policybridge train --lto``: the cases are programs as LLD optimises them."""

import pickle
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from policybridge_core.errors import InvalidError
from policybridge_train.compiling.module import Program
from policybridge_train.compiling.result import CompileResult
from policybridge_train.corpus.description import Corpus
from policybridge_train.farms.local import LocalMachine
from policybridge_train.learning.alternatives import Labels
from policybridge_train.learning.record import Record
from policybridge_train.processes.process import Running
from policybridge_train.tasks.inline import InlineForSize
from policybridge_train.tasks.passes import COUNTS, PassesForSize
from policybridge_train.tasks.recipe import CaseJob, TaskRecipe
from policybridge_train.tasks.task import Asking
from tests.conftest import running_server
from tests.native.conftest import Target
from tests.native.llvm.plugins import built_plugin, need
from tests.native.llvm.test_tasks_elsewhere import compiled
from tests.training.corpora import write_corpus
from tests.training.tuning.boxes import boxes

MAJOR = "22"
CLANG = f"clang-{MAJOR}"
# By the split's rule, project 7 is for validation.
PROJECTS = ("project 0", "project 7")
_FUNCTIONS = [f"{name}_a" for name in ("one", "two", "three", "four", "five")]
MAIN = (
    f"int {', '.join(f'{name}(int)' for name in _FUNCTIONS)};\n"
    f"int main(int n, char **w) {{ return {' + '.join(f'{name}(n)' for name in _FUNCTIONS)} + !w; }}\n"
)


@dataclass(frozen=True)
class Linked:
    """A corpus of programs, and the mode of LTO."""

    mode: str
    corpus: Corpus
    plugins: Path

    @property
    def units(self) -> list[str]:
        """The names of the cases of one project."""
        return ["project 0/prog"] if self.mode == "full" else ["project 0/a.c", "project 0/main.c"]

    def train(self, task: str, algorithm: str, output: Path, *settings: str) -> str:
        """Train; give the lines of the command."""
        words = [task, "--algo", algorithm, "--corpus", self.corpus.folder, "--output", output, "--lto", self.mode]
        words += ["--compiler", CLANG, "--plugins", self.plugins, "--jobs", "2"]
        words += [word for setting in settings for word in ("--set", setting)]
        command = [sys.executable, "-m", "policybridge_client.cli", "train", *map(str, words)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr


@pytest.fixture(params=["full", "thin"])
def linked(request: pytest.FixtureRequest, native: Target, tmp_path: Path) -> Linked:
    plugins = built_plugin(native, "inliner", MAJOR).parent
    need(f"ld.lld-{MAJOR}")
    sources = {
        f"{project}/{name}.c": text for project in PROJECTS for name, text in (("a", boxes("a")), ("main", MAIN))
    }
    programs = [Program("prog", project, "executable", (f"{project}/main.c", f"{project}/a.c")) for project in PROJECTS]
    programs.append(Program("broken", "project 0", "executable", ("project 0/a.c", "project 0/gone.c")))
    return Linked(request.param, write_corpus(tmp_path / "corpus", sources, programs, need(CLANG)), plugins)


def test_flips_of_inlining_at_link_time_are_credited_and_the_policy_decides_there(
    linked: Linked, tmp_path: Path
) -> None:
    output = tmp_path / "run"
    said = linked.train("inline", "credit", output, "iterations=1", "trees=5", "l2=0")
    with Record(output / "run.db", {}) as record:
        labelled = {name: data for _, name, data in record.pieces(1)}
    assert sorted(labelled) == linked.units
    assert " 0 flips" not in said
    assert "'project 0/broken' is left out: 'it cannot be linked without its module project 0/gone.c'" in said
    task = InlineForSize(CLANG, str(linked.plugins), lto=linked.mode)
    with running_server(output / "policies", tmp_path) as server:
        plain, made = (
            [task.run(case, asking) for case in task.cases(linked.corpus.folder)]
            for asking in (None, Asking(server.socket, "inline@2"))
        )
    assert [each.failure for each in (*plain, *made)] == [""] * 2 * len(plain)
    # A module of ThinLTO has too few calls to learn another decision from.
    assert linked.mode == "thin" or [each.digest for each in made] != [each.digest for each in plain]


def test_functions_of_a_program_are_labelled_with_their_bytes_by_alternatives_of_passes(
    linked: Linked, tmp_path: Path
) -> None:
    output = tmp_path / "run"
    linked.train("passes", "exhaustive", output, "tried=4,18", "trees=5", "units=1", "l2=0")
    with Record(output / "run.db", {}) as record:
        pieces = {name: Labels.unpacked(data, len(COUNTS), PassesForSize.choices) for _, name, data in record.pieces(1)}
    assert sorted(pieces) == linked.units
    assert sum(map(len, pieces.values())) > 1


def test_another_machine_prepares_the_programs_of_the_corpus_itself(linked: Linked) -> None:
    options = {"compiler": CLANG, "plugins": str(linked.plugins), "lto": linked.mode}
    task = InlineForSize(**options)
    recipe = TaskRecipe.of(task, "inline", options, linked.corpus.folder)
    for case in task.cases(linked.corpus.folder):
        assert task.modules_of(case) is None
        job: CaseJob[CompileResult] = pickle.loads(pickle.dumps(CaseJob(recipe, case, (), compiled)))
        assert job.run(LocalMachine(Running())).totals == task.run(case, None).totals


def test_an_unknown_mode_is_refused_with_the_known_ones(native: Target) -> None:
    plugins = built_plugin(native, "inliner", MAJOR).parent
    with pytest.raises(InvalidError, match="lto=fat is no mode of LTO: give full or thin"):
        InlineForSize(need(CLANG), str(plugins), lto="fat")


def test_a_corpus_of_which_no_program_can_be_linked_is_refused(native: Target, tmp_path: Path) -> None:
    plugins = built_plugin(native, "inliner", MAJOR).parent
    broken = Program("broken", "p", "executable", ("p/a.c", "p/gone.c"))
    corpus = write_corpus(tmp_path / "corpus", {"p/a.c": boxes("a")}, [broken], need(CLANG))
    with pytest.raises(InvalidError, match="can be linked, so there is nothing to train on"):
        InlineForSize(CLANG, str(plugins), lto="full").cases(corpus.folder)

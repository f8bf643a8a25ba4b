"""``policybridge train passes`` with a real compiler, plugin and server."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from policybridge_client.decisions import function_key
from policybridge_client.decisions.passes import ALTERNATIVES
from policybridge_train.compiling.compilation import Plain
from policybridge_train.compiling.compiler import Compiler, CompileTool
from policybridge_train.compiling.job import Wanted, compile_module
from policybridge_train.corpus.description import Corpus
from policybridge_train.learning.alternatives import Labels
from policybridge_train.learning.record import Record
from policybridge_train.objects.elf import ObjectFile
from policybridge_train.tasks.inline import by_unit
from policybridge_train.tasks.passes import COUNTS, PassesForSize
from policybridge_train.tasks.task import Asking
from tests.conftest import running_server
from tests.native.conftest import Target
from tests.native.llvm.plugins import built_plugin, need
from tests.native.llvm.stores import Tuner
from tests.native.llvm.test_pass_choices import LOOPS
from tests.native.llvm.test_pass_sessions import INLINED, stats
from tests.training.corpora import write_corpus

OF_SIZE = tuple(ALTERNATIVES).index("size")


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    # By the split's rule, project 7 is for validation, and project 3 held out.
    sources = {f"project {number}/{name}.c": LOOPS for number, name in ((0, "a"), (1, "b"), (7, "v"), (3, "h"))}
    return write_corpus(tmp_path / "a corpus", sources, compiler=need("clang-22"))


@pytest.fixture
def plugin(native: Target) -> Path:
    return built_plugin(native, "inliner", "22")


def test_each_function_is_labelled_with_its_bytes_by_each_alternative(
    tmp_path: Path, corpus: Corpus, plugin: Path
) -> None:
    trained(corpus, tmp_path / "run", plugin)
    with Record(tmp_path / "run" / "run.db", {}) as record:
        ((_, name, data), _) = record.pieces(1)
    labels = Labels.unpacked(data, len(COUNTS), len(ALTERNATIVES))
    # A function that LLVM does not optimise has no decision.
    assert labels.costs.shape == (5, len(ALTERNATIVES))
    assert sorted(labels.rows[:, COUNTS.index("loops")].tolist()) == [0, 1, 1, 1, 2]
    wanted = Wanted(("text",), units=by_unit)
    tool = CompileTool(Compiler.find("clang-22"))
    plain = compile_module(tool, corpus.select([name]).modules[0], Plain(), wanted)
    own = sorted(plain.costs[function_key(each)] for each in ("sum", "other", "choose", "fill", "mix"))
    assert sorted(labels.costs[:, 0].tolist()) == own
    placement = ("-enable-ext-tsp-block-placement", "-apply-ext-tsp-for-size", "-ext-tsp-chain-split-threshold=24")
    switches = ("-disable-machine-licm", "-disable-lsr", *placement)
    constants = Plain(tuple(word for switch in switches for word in ("-mllvm", switch)))
    by_switches = compile_module(tool, corpus.select([name]).modules[0], constants, wanted)
    of_size = sorted(by_switches.costs[function_key(each)] for each in ("sum", "other", "choose", "fill", "mix"))
    assert sorted(labels.costs[:, OF_SIZE].tolist()) == of_size


def test_what_was_trained_chooses_passes_in_a_compiler_as_well_as_the_best_alternative_for_all(
    tmp_path: Path, corpus: Corpus, plugin: Path
) -> None:
    output = tmp_path / "run"
    trained(corpus, output, plugin)
    with Record(output / "run.db", {}) as record:
        iterations = record.iterations()
        labels = [Labels.unpacked(data, len(COUNTS), len(ALTERNATIVES)) for _, _, data in record.pieces(1)]
    text = [each.costs["project 7/v.c"]["text"] for each in iterations]
    # All modules are the same, so that the best for training is the best for validation. Unwind tables end at 8 bytes.
    costs = np.sum([each.costs for each in labels], axis=(0, 1))
    saved = float(costs[0] - costs.min()) / len(labels)
    assert saved > 0
    assert abs(text[0] - text[1] - saved) < 8
    assert text[2] <= text[1]
    source = tmp_path / "loops.c"
    source.write_text(LOOPS)
    tuner = Tuner("22", plugin, tmp_path)
    with running_server(output / "policies", tmp_path) as server:
        told = stats(tuner.compile(source, server=server.socket, policy="passes@3", fallback="error"))
        assert (told["passes"]["decisions"], told["decisions"], told["fallback"]) == (5, 0, None)
        task = PassesForSize("clang-22", str(plugin.parent))
        (case,) = [case for case in task.cases(corpus.folder) if case.project == "project 3"]
        assert task.run(case, Asking(server.socket, "passes@3")).totals["text"] == text[2]


def test_the_bundled_policy_decides_inlining_and_the_passes_of_each_function(tmp_path: Path, plugin: Path) -> None:
    source = tmp_path / "loops.c"
    source.write_text(LOOPS + INLINED)
    tuner = Tuner("22", plugin, tmp_path)
    with running_server(None, tmp_path) as server:
        inlined = stats(tuner.compile(source, server=server.socket, policy="inliner", fallback="error"))
        made = tuner.compile(source, server=server.socket, policy="size", fallback="error")
    told = stats(made)
    assert (told["decisions"], told["advice"]) == (inlined["decisions"], inlined["advice"])
    assert told["decisions"] > 0
    assert told["passes"]["decisions"] > 5
    assert told["fallback"] is None
    assert ObjectFile(made.output).text < ObjectFile(tuner.plain(source)).text


def trained(corpus: Corpus, output: Path, plugin: Path) -> None:
    words = ["passes", "--algo", "exhaustive", "--corpus", str(corpus.folder), "--output", str(output), "--jobs", "2"]
    words += ["--compiler", "clang-22", "--plugins", str(plugin.parent)]
    words += ["--set", "trees=5", "--set", "units=1", "--set", "l2=0"]
    command = [sys.executable, "-m", "policybridge_client.cli", "train", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr

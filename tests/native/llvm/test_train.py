"""``policybridge train`` with a real compiler, plugin and server."""

import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from policybridge_server.page.runs import ShownRun
from policybridge_train.corpus.description import Corpus
from policybridge_train.learning.record import Iteration, Record
from policybridge_train.objects.elf import ObjectFile
from tests.native.llvm.plugins import need
from tests.training.corpora import compile_all, write_corpus
from tests.training.tuning.boxes import boxes

pytestmark = pytest.mark.parametrize("major", ["22"])
"""Training is the same with each; the plugins have their own tests."""

SOURCES = {
    "project 0/a.c": boxes("a"),
    "project 1/b.c": boxes("b"),
    "project 1/calls nothing.c": "int x;\n",
    "project 7/v.c": boxes("v"),
    "project 3/h.c": boxes("h"),
}
"""By the split's rule, project 7 is for validation, and project 3 held out."""


@pytest.fixture
def corpus(tmp_path: Path, major: str) -> Corpus:
    return write_corpus(tmp_path / "a corpus", SOURCES, compiler=need(f"clang-{major}"))


def command(corpus: Corpus, output: Path, major: str, plugin: Path, *more: str) -> list[str]:
    words = ["inline", "--algo", "credit", "--corpus", str(corpus.folder), "--output", str(output)]
    words += ["--compiler", f"clang-{major}", "--plugins", str(plugin.parent)]
    words += ["--set", "iterations=2", "--set", "compiles=3", "--set", "trees=20", "--jobs", "2", *more]
    return [sys.executable, "-m", "policybridge_client.cli", "train", *words]


def trained(words: Sequence[str]) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def iterations(output: Path) -> list[Iteration]:
    with Record(output / "run.db", {}) as record:
        return record.iterations()


def test_a_run_publishes_a_version_for_each_iteration_and_never_compiles_what_is_held_out(
    tmp_path: Path, corpus: Corpus, major: str, plugin: Path
) -> None:
    module = next(module for module in corpus.modules if module.project == "project 3")
    module.bitcode.unlink()
    output = tmp_path / "a run"
    said = trained(command(corpus, output, major, plugin, "--promote", "stable"))
    assert re.findall(r"^iteration (\d+): inline@", said, re.MULTILINE) == ["0", "1", "2"]
    assert "project 3" not in said
    assert "inline@stable" in said
    assert "inline by credit" in (output / "report.html").read_text(encoding="utf-8")
    shown = msgspec.json.decode((output / "run.json").read_bytes(), type=ShownRun)
    assert [each.number for each in shown.iterations] == [0, 1, 2]
    assert shown.iterations[0].changes["text"] == 0
    plain = compile_all(corpus.select(["project 7/v.c"]), tmp_path, f"clang-{major}")["project 7/v.c"]
    first, *_ = iterations(output)
    assert first.costs["project 7/v.c"]["text"] == ObjectFile.read(plain).text
    assert len(list((output / "policies" / "inline").glob("*/model.onnx"))) >= 3


def test_a_run_whose_trainer_was_killed_ends_with_the_versions_of_an_undisturbed_one(
    tmp_path: Path, corpus: Corpus, major: str, plugin: Path
) -> None:
    quiet, killed = tmp_path / "quiet", tmp_path / "killed"
    trained(command(corpus, quiet, major, plugin))
    words = command(corpus, killed, major, plugin)
    # Killed after its first words, and again after its first iteration.
    for until in ("iteration 0: ", "iteration 1: 3 of 3 modules"):
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert any(until in line for line in process.stdout), "it ended before it could be killed"
            process.send_signal(signal.SIGKILL)
    trained(words)
    assert [each.digest for each in iterations(killed)] == [each.digest for each in iterations(quiet)]


def test_what_cannot_be_trained_is_told(tmp_path: Path, corpus: Corpus, major: str, plugin: Path) -> None:
    def refused(*more: str) -> str:
        words = command(corpus, tmp_path / "run", major, plugin, *more)
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=600)
        assert done.returncode == 2, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done.stderr

    assert "it takes, with these defaults: iterations=6" in refused("--set", "iteration=3")
    assert "does not take these options" in refused("--option", "compilr=clang")
    assert "there are 0: add modules" in refused("--module", "*nothing has this name*")

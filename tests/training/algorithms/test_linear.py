"""Evolution by function: a real compiler, and the versions that a run publishes."""

from pathlib import Path

import numpy as np
import pytest

from policybridge_client.cli import main
from policybridge_train.corpus.parts import Part, part_of
from policybridge_train.learning.record import Record
from tests.client.compilers import write_pressure
from tests.frameworks import require
from tests.training.corpora import write_corpus

require("onnx")

_FEW = ("--set", "iterations=1", "--set", "steps=2", "--set", "cases=2", "--compiler", "zig")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("a corpus")
    source = write_pressure(folder).read_text()
    assert part_of("lz4") is Part.TRAINING
    assert part_of("zopfli") is Part.VALIDATION
    assert part_of("bzip2") is Part.HELD_OUT
    names = ["lz4/a.c", "lz4/b.c", "zopfli/a.c", "bzip2/a.c"]
    write_corpus(folder, {name: source.replace(" f(", f" f{place}(") for place, name in enumerate(names)})
    return folder


def trained(corpus: Path, output: Path, *words: str) -> list[str]:
    """Train, and give the digests of the versions."""
    assert main(["train", "evict", "--algo", "linear", "--corpus", str(corpus), "--output", str(output), *words]) == 0
    facts = {"task": "evict", "algorithm": "linear"}
    with Record(output / "run.db", facts) as record:
        done = record.iterations()
        steps = [np.frombuffer(data)[0] for _, _, data in record.pieces(9)]
    assert [each.number for each in done] == [0, 1]
    assert steps == [1, 2]
    assert all(each.costs.keys() == {"zopfli/a.c"} and each.costs["zopfli/a.c"]["spills_log2"] > 4 for each in done)
    return [each.digest for each in done]


def test_the_same_seed_gives_the_same_policy_and_a_run_that_ended_is_not_run_again(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = trained(corpus, tmp_path / "first", *_FEW, "--jobs", "2")
    assert first[0] != first[1]
    assert "functions of 2 modules" in capsys.readouterr().out
    assert trained(corpus, tmp_path / "first", *_FEW) == first
    assert "step" not in capsys.readouterr().out
    assert trained(corpus, tmp_path / "second", *_FEW, "--jobs", "1") == first


def test_a_task_of_other_decisions_is_refused(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "priority", "--algo", "linear", "--corpus", str(corpus), "--output", str(tmp_path)]
    assert main([*words, "--compiler", "zig"]) == 2
    assert "not priority" in capsys.readouterr().err

"""Evolution by function: a real compiler, and the versions that a run publishes."""

import json
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


def test_one_project_alone_trains_by_a_split_by_file_which_the_run_tells_and_score_takes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_pressure(tmp_path).read_text()
    names = [f"mine/{letter}.c" for letter in "abcdef"]
    corpus = tmp_path / "corpus"
    write_corpus(corpus, {name: source.replace(" f(", f" f{place}(") for place, name in enumerate(names)})
    output, algorithm = tmp_path / "run", ["train", "evict", "--algo", "linear", "--corpus", str(corpus)]
    assert main([*algorithm, "--output", str(output), *_FEW]) == 0
    assert "held out by file: expect less on other projects" in capsys.readouterr().out
    assert "held out by file" in (output / "report.html").read_text()
    parts = {line.split(" ")[1]: line.split(" ")[0] for line in (output / "split.txt").read_text().splitlines()}
    assert sorted(parts) == names
    held_out = {name for name, part in parts.items() if part == "held-out"}
    assert held_out
    score = ["score", "--corpus", str(corpus), "--task", "evict", "--compiler", "zig", "--candidate", "default"]
    scores, split = tmp_path / "scores.json", str(output / "split.txt")
    assert main([*score, "--split", split]) == 2
    assert "give both" in capsys.readouterr().err
    assert main([*score, "--split", split, "--part", "held-out", "--json", str(scores)]) == 0
    (comparison,) = json.loads(scores.read_text())["comparisons"]
    assert {each["module"] for each in comparison["modules"]} == held_out


def test_a_list_of_parts_splits_the_cases(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parts = tmp_path / "parts"
    words = ["train", "evict", "--algo", "linear", "--corpus", str(corpus), "--split", str(parts), *_FEW]
    parts.write_text("training *\n")
    assert main([*words, "--output", str(tmp_path / "none")]) == 2
    assert f"by {parts}, 4 of 4 cases are for training and 0 for validation" in capsys.readouterr().err
    parts.write_text("validation lz4/*\nheld-out zopfli/*\ntraining *\n")
    assert main([*words, "--output", str(tmp_path / "run")]) == 0
    with Record(tmp_path / "run" / "run.db", {}) as record:
        assert record.iterations()[0].costs.keys() == {"lz4/a.c", "lz4/b.c"}
    # Another list is another run.
    parts.write_text("validation zopfli/*\ntraining *\n")
    assert main([*words, "--output", str(tmp_path / "run")]) == 2


def test_the_result_of_a_run_as_json_is_alone_on_the_standard_output(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "run"
    digests = trained(corpus, output, *_FEW, "--json")
    told = capsys.readouterr()
    result = json.loads(told.out)
    assert [each["digest"] for each in result["versions"]] == digests
    assert result["versions"][0]["changes"]["spills_log2"] == 0
    assert result["policy"] == "evict"
    assert Path(result["folder"]) == output / "policies" / "evict" / str(result["best"])
    assert Path(result["folder"]).is_dir()
    assert "iteration 1" in told.err

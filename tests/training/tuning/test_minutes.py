"""Searches that end after a time."""

from pathlib import Path
from time import monotonic

import pytest

from policybridge_client.cli import main
from policybridge_client.decisions import read_store
from policybridge_train.corpus.description import Corpus
from policybridge_train.tuning.autotuner import Autotuner
from policybridge_train.tuning.module import ModuleTuning
from policybridge_train.tuning.progress import Progress
from policybridge_train.tuning.ranking import Ranking
from policybridge_train.tuning.tools import Tools
from tests.client.compilers import write_source
from tests.training.corpora import write_corpus
from tests.training.tuning.autotuning import zig_compiler


def corpus_of(folder: Path) -> Corpus:
    return write_corpus(folder / "corpus", {"one/module.c": write_source(folder, functions=20).read_text()})


@pytest.mark.parametrize("compiles", [0, 1, 2])
def test_a_search_that_is_closed_compiles_what_it_has_accepted_alone_and_nothing_else(
    tmp_path: Path, compiles: int
) -> None:
    (module,) = corpus_of(tmp_path).modules
    with Progress(tmp_path / "progress.db") as progress:
        compiler = zig_compiler()
        running = compiler.farm.running
        tools = Tools(compiler, Ranking(), progress, 1000, lambda *_: None, running, "zig")
        tuning = ModuleTuning(module, tools)
        for _ in range(compiles):
            assert tuning.step()
        open_before = tuning.search()
        Autotuner([tuning], 2, running, until=monotonic()).run(lambda _: None)
        search = tuning.search()
        assert tuning.done
        assert (search is None) == (compiles == 0)
        if search is None or open_before is None:
            return
        assert search.is_checked
        assert (search.spent == compiles) == open_before.is_checked
        assert not search.closed
        again = ModuleTuning(module, tools)
        assert again.step()
        gone_on = again.search()
        assert gone_on is not None
        assert gone_on.spent == search.spent + 1


def test_autotune_ends_after_the_minutes_that_it_is_given_with_a_store(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus = corpus_of(tmp_path)
    store = tmp_path / "tuned.db"
    words = ["--store", str(store), "--corpus", str(corpus.folder), "--compiler", "zig", "--budget", "100000"]
    assert main(["autotune", *words, "--minutes", "0.05"]) == 0
    assert "decisions" in capsys.readouterr().out
    assert all(section.decisions for section in read_store(store).sections)


def test_a_search_whose_time_ends_tells_how_many_modules_it_did_not_reach(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = write_source(tmp_path, functions=20).read_text()
    corpus = write_corpus(tmp_path / "corpus", {f"one/{name}.c": f"{text}int {name};" for name in "abc"})
    words = ["--store", str(tmp_path / "tuned.db"), "--corpus", str(corpus.folder), "--compiler", "zig"]

    main(["autotune", *words, "--budget", "2", "--jobs", "1", "--minutes", "0.0001"])
    assert "of 3 modules were not compiled yet: the same command goes on with them" in capsys.readouterr().out

    assert main(["autotune", *words, "--budget", "2"]) == 0
    assert "not compiled yet" not in capsys.readouterr().out


@pytest.mark.parametrize("minutes", ["0", "-1", "nan", "inf"])
def test_minutes_that_are_no_time_are_refused(minutes: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["autotune", "--store", "tuned.db", "--corpus", "corpus", "--minutes", minutes])
    assert "give minutes, more than 0" in capsys.readouterr().err

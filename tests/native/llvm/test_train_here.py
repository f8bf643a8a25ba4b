"""Training on records of decisions by the form in the compiler: the versions are those of decisions at the server."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from policybridge_server.ledger.query import Query
from policybridge_server.ledger.reader import LedgerReader
from policybridge_train.corpus.description import Corpus
from policybridge_train.learning.record import Record
from tests.native.llvm.plugins import need
from tests.training.corpora import write_corpus
from tests.training.tuning.boxes import boxes

SOURCES = {
    "project 0/a.c": boxes("a"),
    "project 1/b.c": boxes("b"),
    "project 7/v.c": boxes("v"),
    "project 3/h.c": boxes("h"),
}
"""By the split's rule, project 7 is for validation, and project 3 held out."""

SETTINGS = {
    "credit": ("iterations=2", "compiles=3", "trees=20"),
    "ppo": ("iterations=3", "lean=1", "rate=0.05", "batch=32"),
    "es": ("iterations=2", "reward=module", "pairs=2", "lean=1"),
    "bcmax": ("iterations=2", "lean=1", "rate=0.02", "batch=32"),
}


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    return write_corpus(tmp_path / "corpus", SOURCES, compiler=need("clang-22"))


def trained(algorithm: str, corpus: Corpus, output: Path, plugin: Path, evaluate: str) -> tuple[list[str], int, int]:
    """Train; give the digests of the versions, and how many decisions clients and the server made."""
    words = ["inline", "--algo", algorithm, "--corpus", str(corpus.folder), "--output", str(output), "--jobs", "2"]
    words += ["--compiler", "clang-22", "--plugins", str(plugin.parent)]
    words += [word for setting in SETTINGS[algorithm] for word in ("--set", setting)]
    environment = {**os.environ, "POLICYBRIDGE_EVALUATE": evaluate, "XDG_CACHE_HOME": str(output.parent / "cache")}
    done = subprocess.run(
        [sys.executable, "-m", "policybridge_client.cli", "train", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        env=environment,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    with Record(output / "run.db", {}) as record:
        digests = [each.digest for each in record.iterations()]
    with LedgerReader(output / "ledger.db") as reader:
        counts = [(each.labels.get("evaluated") == "client", each.decisions) for each in reader.sessions(Query())]
    return digests, sum(count for here, count in counts if here), sum(count for here, count in counts if not here)


@pytest.mark.parametrize("major", ["22"])
@pytest.mark.parametrize("algorithm", list(SETTINGS))
def test_versions_that_are_trained_on_decisions_here_are_those_of_decisions_at_the_server(
    tmp_path: Path, corpus: Corpus, plugin: Path, algorithm: str, major: str
) -> None:
    assert major in plugin.name
    there, none, asked = trained(algorithm, corpus, tmp_path / "there", plugin, "there")
    here, decided, rest = trained(algorithm, corpus, tmp_path / "here", plugin, "auto")
    assert here == there
    assert len(set(here)) > 1
    assert (none, decided + rest) == (0, asked)
    assert decided > 0

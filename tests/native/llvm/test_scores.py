"""``policybridge score`` where there is a plugin for the compiler."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from policybridge_client.cli import main
from policybridge_client.decisions import read_sites
from policybridge_train.corpus.description import Corpus
from tests.client.compilers import write_source
from tests.conftest import RunningServer, running_server
from tests.native.llvm.plugins import ECHO, need
from tests.repositories import answering, write_python
from tests.training.corpora import write_corpus


@pytest.fixture
def corpus(tmp_path: Path, major: str) -> Corpus:
    names = ("p/a file.c", "p/lib/b.c")
    sources = {name: write_source(tmp_path, f"s{number}.c", 4).read_text() for number, name in enumerate(names)}
    return write_corpus(tmp_path / "a corpus", sources, compiler=need(f"clang-{major}"))


@pytest.fixture(scope="module")
def echo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    repository = tmp_path_factory.mktemp("policies")
    write_python(repository, "echo", answering(ECHO))
    with running_server(repository, tmp_path_factory.mktemp("s")) as running:
        yield running


def score(corpus: Corpus, major: str, plugin: Path, tmp_path: Path, *words: str) -> Any:
    file = tmp_path / "scores.json"
    arguments = ["--compiler", f"clang-{major}", "--plugins", str(plugin.parent), "--no-cache", "--json", str(file)]
    assert main(["score", "--corpus", str(corpus.folder), *arguments, *words]) == 0
    return json.loads(file.read_bytes())["comparisons"][0]


def test_a_policy_is_asked_by_the_plugin_and_an_echo_changes_exactly_nothing(
    corpus: Corpus, major: str, plugin: Path, tmp_path: Path, echo: RunningServer
) -> None:
    found = score(corpus, major, plugin, tmp_path, "--candidate", "echo", "--server", echo.socket)
    assert found["way"] == "plugin"
    assert len(found["modules"]) == 2
    for row in found["modules"]:
        assert row["after"]["status"] == "ok", row
        assert row["after"]["digest"] == row["before"]["digest"]


def test_a_store_is_applied_to_the_modules_that_it_names_and_the_rest_is_llvms_own(
    corpus: Corpus, major: str, plugin: Path, tmp_path: Path
) -> None:
    module = corpus.modules[1]
    key = _site(major, plugin, module.bitcode, tmp_path)
    store = tmp_path / "tuned of mine.db"
    store.write_text(
        "policybridge-decisions 1\n"
        f"module llvm={major} level=Oz by=site digest=- path=p/lib/b.c\n"
        f"{key} inline caller callee\n"
    )
    found = score(corpus, major, plugin, tmp_path, "--candidate", str(store))
    untouched, changed = found["modules"]
    assert found["way"] == "plugin"
    assert untouched["after"]["digest"] == untouched["before"]["digest"]
    assert changed["after"]["digest"] != changed["before"]["digest"]
    again = subprocess.run(changed["repeat"], shell=True, capture_output=True, text=True, check=True, cwd=tmp_path)
    sizes = [int(line.split()[0]) for line in again.stdout.splitlines()[1:]]
    assert sizes == [changed["before"]["text"], changed["after"]["text"]]


def _site(major: str, plugin: Path, bitcode: Path, folder: Path) -> str:
    """Give the key of a call that LLVM leaves by itself."""
    log = folder / "sites"
    early = ["-load", str(plugin)] if major == "19" else []
    command = [f"clang-{major}", "-cc1", "-emit-obj", "-Oz", *early, f"-fpass-plugin={plugin}"]
    flags = ["-mllvm", f"-policybridge-sites={log}", "-o", str(folder / "x.o"), "-x", "ir", str(bitcode)]
    subprocess.run([*command, *flags], check=True, capture_output=True)
    sites = read_sites(log)
    return next(key for key, default in zip(sites.keys, sites.default, strict=True) if not default)

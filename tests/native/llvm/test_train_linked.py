"""Training by linked credit: functions that several modules of a program have count for their part."""

import re
from pathlib import Path

import msgspec
import numpy as np
import pytest

from policybridge_train.compiling.module import Program
from policybridge_train.corpus.description import Corpus
from policybridge_train.learning.record import Record
from policybridge_train.objects.elf import ObjectFile
from tests.native.llvm.plugins import need
from tests.native.llvm.test_train import command, iterations, trained
from tests.training.corpora import compile_all, write_corpus
from tests.training.tuning.boxes import boxes
from tests.training.tuning.test_linked import cpp

pytestmark = pytest.mark.parametrize("major", ["22"])

SHARED = "_ZN4Each4bothEi"


@pytest.fixture
def corpus(tmp_path: Path, major: str) -> Corpus:
    """Write a corpus whose modules have a function in common; by the split's rule, project 7 is for validation."""
    files = [f"project {place}.cpp" for place in ("1/a", "1/b", "1/d", "7/v", "7/w", "7/x")]
    asked = {name: cpp(Path(name).stem).replace("__attribute__((noinline))", "") for name in files}
    sources = asked | {"project 1/c.c": boxes("c")}
    programs = [Program("tool", "project 7", "executable", ("project 7/v.cpp", "project 7/w.cpp", "project 7/x.cpp"))]
    return write_corpus(tmp_path / "a corpus", sources, programs, compiler=need(f"clang-{major}"))


def test_versions_are_compared_by_the_bytes_that_a_program_pays_once(
    tmp_path: Path, corpus: Corpus, major: str, plugin: Path
) -> None:
    output = tmp_path / "a run"
    said = trained(command(corpus, output, major, plugin, "--set", "linked=true"))
    first, *_ = iterations(output)
    (tmp_path / "plain").mkdir()
    for name, made in compile_all(corpus, tmp_path / "plain", f"clang-{major}").items():
        if name.startswith("project 7/"):
            text, size = first.costs[name]["text"], ObjectFile.read(made).functions[SHARED]
            assert next(iter(first.costs[name])) == "linked"
            assert size * 2 / 3 <= text - first.costs[name]["linked"] < text
    assert re.search(r"^iteration 0: .*linked \+0\.00 %", said, re.MULTILINE)


def test_a_call_in_a_function_of_three_modules_is_learnt_with_a_third_of_the_weight(
    tmp_path: Path, corpus: Corpus, major: str, plugin: Path
) -> None:
    def thirds(output: Path, *more: str) -> set[str]:
        trained(command(corpus, output, major, plugin, "--set", "iterations=1", *more))
        with Record(output / "run.db", {}) as record:
            found = {name: msgspec.msgpack.decode(data)["weights"] for _, name, data in record.pieces(1)}
        return {name for name, one in found.items() if np.float32(1 / 3) in np.frombuffer(one, np.float32)}

    linked = thirds(tmp_path / "linked", "--set", "linked=true")
    # Chance chooses the flips of each module.
    assert linked
    assert linked <= {f"project 1/{name}.cpp" for name in "abd"}
    assert not thirds(tmp_path / "by object")


def test_a_run_that_has_ended_compiles_nothing_if_it_is_continued(
    tmp_path: Path, corpus: Corpus, major: str, plugin: Path
) -> None:
    words = command(corpus, tmp_path / "run", major, plugin, "--set", "linked=true", "--set", "iterations=1")
    trained(words)
    before = iterations(tmp_path / "run")
    for module in corpus.modules:
        module.bitcode.unlink()
    trained(words)
    assert iterations(tmp_path / "run") == before


def test_linked_credit_is_refused_at_link_time(tmp_path: Path, corpus: Corpus, major: str, plugin: Path) -> None:
    words = command(corpus, tmp_path / "run", major, plugin, "--set", "linked=true", "--lto", "thin")
    with pytest.raises(AssertionError, match="without --lto"):
        trained(words)

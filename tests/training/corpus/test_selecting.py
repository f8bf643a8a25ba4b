"""The modules and programs of a corpus that patterns and a split let through."""

from pathlib import Path

import pytest

from policybridge_core.errors import NotFoundError
from policybridge_train.compiling.module import Module, Program
from policybridge_train.compiling.options import Selection
from policybridge_train.corpus.description import Corpus
from policybridge_train.corpus.parts import Part
from policybridge_train.corpus.selecting import selected
from policybridge_train.corpus.splitting import Split

ALL = Selection()
SPLIT = Split([(Part.HELD_OUT, "*b.c"), (Part.TRAINING, "*")])


def corpus(*programs: Program) -> Corpus:
    names = [f"{project}/{file}" for project in ("one", "two") for file in ("a.c", "b.c", "more b.c")]
    modules = [Module(name, Path("none"), (), name.partition("/")[0], name, "c") for name in names]
    return Corpus(Path("none"), modules, programs, {"one/broken.c": "no", "one/broken b.c": "no"})


def test_a_program_is_in_the_part_that_all_its_modules_are_in() -> None:
    mixed = Program("mixed", "one", "executable", ("one/a.c", "one/b.c"))
    whole = Program("whole", "one", "executable", ("one/b.c", "one/more b.c"))
    found = selected(corpus(mixed, whole), ALL, Part.HELD_OUT, SPLIT)
    assert [each.name for each in found.modules] == ["one/b.c", "one/more b.c", "two/b.c", "two/more b.c"]
    assert [(each.name, each.modules) for each in found.programs] == [
        ("whole", ("one/b.c", "one/more b.c")),
        # This project has no program.
        ("two", ("two/b.c", "two/more b.c")),
    ]
    assert set(found.failures) == {"one/broken b.c"}


def test_without_a_part_a_split_leaves_nothing_out() -> None:
    assert len(selected(corpus(), ALL, None, SPLIT).modules) == 6


def test_a_part_without_modules_names_the_list_of_a_run_that_split_by_file() -> None:
    with pytest.raises(NotFoundError, match=r"it has 6; .* --split RUN/split.txt"):
        selected(corpus(), ALL, Part.VALIDATION)

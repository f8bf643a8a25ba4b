"""The split of projects."""

from pathlib import Path

import pytest

from policybridge_core.errors import InvalidError, NotFoundError
from policybridge_train.corpus.parts import Part, part_of
from policybridge_train.corpus.splitting import Split
from policybridge_train.learning.training import cases_of
from policybridge_train.tasks.task import Case


def test_the_part_of_a_project_never_changes() -> None:
    assert {name: part_of(name) for name in ("re2", "leveldb", "tinyxml2", "zlib", "lua5.4")} == {
        "re2": Part.HELD_OUT,
        "leveldb": Part.HELD_OUT,
        "tinyxml2": Part.VALIDATION,
        "zlib": Part.TRAINING,
        "lua5.4": Part.TRAINING,
    }


def test_every_case_of_a_project_is_in_one_part() -> None:
    cases = [Case(f"{project}/{file}", project) for project in ("re2", "zlib", "odd\udcff") for file in "ab"]
    parts = [cases_of(cases, part) for part in Part]
    assert sorted(case.name for part in parts for case in part) == sorted(case.name for case in cases)
    assert all(len({part_of(case.project) for case in part}) <= 1 for part in parts)


def test_about_a_third_of_all_names_is_held_out() -> None:
    parts = [part_of(f"project {number}") for number in range(3000)]
    assert 0.3 < parts.count(Part.HELD_OUT) / len(parts) < 0.37
    assert 0.1 < parts.count(Part.VALIDATION) / len(parts) < 0.17


def of_one_project(*names: str) -> Split:
    return Split.of(dict.fromkeys(names, "mine"))


def test_one_project_is_split_by_file_with_some_to_learn_from_and_some_to_choose_by() -> None:
    for count in range(2, 40):
        names = [f"mine/{number}.c" for number in range(count)]
        parts = [of_one_project(*names).part(name, "mine") for name in names]
        assert {Part.TRAINING, Part.VALIDATION} <= set(parts)
    assert 10 <= sum(of_one_project(*names).part(name, "mine") is Part.HELD_OUT for name in names) <= 16


def test_projects_of_which_none_would_be_for_validation_are_split_by_file() -> None:
    cases = {f"{project}/{file}": project for project in ("zlib", "lua5.4") for file in "abcdef"}
    split = Split.of(cases)
    assert {split.part(name, project) for name, project in cases.items()} >= {Part.TRAINING, Part.VALIDATION}
    assert Split.of({**cases, "tinyxml2/a": "tinyxml2"}).rows is None


def test_a_split_needs_two_cases() -> None:
    with pytest.raises(InvalidError, match="there are 1: add modules"):
        of_one_project("mine/a.c")


def test_a_written_split_is_read_as_it_was_even_with_names_that_are_patterns_or_no_utf8(tmp_path: Path) -> None:
    names = ["mine/a b.c", "mine/[x].c", "mine/x.c", "mine/odd\udcff.c", "mine/*.c"]
    split = of_one_project(*names)
    split.write(tmp_path / "split.txt")
    again = Split.read(tmp_path / "split.txt")
    assert [again.part(name, "mine") for name in names] == [split.part(name, "mine") for name in names]


def test_a_list_gives_the_part_of_a_name_before_that_of_the_first_pattern(tmp_path: Path) -> None:
    (tmp_path / "split").write_text("# mine\n\nheld-out tests/*\nvalidation *.cc\ntraining tests/a.c\n")
    split = Split.read(tmp_path / "split")
    given = {name: split.part(name, "mine") for name in ("tests/a.c", "tests/b.cc", "src/b.cc")}
    assert given == {"tests/a.c": Part.TRAINING, "tests/b.cc": Part.HELD_OUT, "src/b.cc": Part.VALIDATION}
    with pytest.raises(InvalidError, match=r"no line for src/a.c; a last line 'training \*' takes all others"):
        split.part("src/a.c", "mine")


@pytest.mark.parametrize("line", ["trainig *", "training", "training   ", "*"])
def test_a_wrong_line_of_a_list_is_told_with_its_number_and_the_parts(tmp_path: Path, line: str) -> None:
    (tmp_path / "split").write_text(f"validation a\n{line}\n")
    with pytest.raises(InvalidError, match=r"split:2: .* is not PART PATTERN.*training, validation, held-out"):
        Split.read(tmp_path / "split")


def test_a_list_that_is_missing_is_told(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="cannot be read"):
        Split.read(tmp_path / "none")

"""The split of projects."""

from policybridge_train.corpus.parts import Part, part_of
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

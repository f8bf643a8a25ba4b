"""The tool that changes the code changes what it says, and fits the code as it is."""

import ast
import json
import tomllib
from pathlib import Path

from tests.mutants.__main__ import Run
from tests.mutants.by_hand import by_hand
from tests.mutants.choice import Listed, area_of, drawn
from tests.mutants.operators import mutants_of
from tests.mutants.results import Results
from tests.mutants.targets import TARGETS, missing
from tests.mutants.trees import ROOT

SOURCE = '''
LIMIT: int = 3


def check(value: int) -> bool:
    """Not a mutant: 1 < 2."""
    if value < LIMIT and "ü":
        raise ValueError(f"{value + 1}")
    print(value)
    return not value
'''


def test_each_operator_changes_one_place_and_leaves_the_rest() -> None:
    changed = {mutant.applied(SOURCE) for mutant in mutants_of("file.py", SOURCE)}
    expected = {
        ("LIMIT: int = 3", "LIMIT: int = 4"),
        ('if value < LIMIT and "ü":', "if not (value < LIMIT and 'ü'):"),
        ('if value < LIMIT and "ü":', "if (value < LIMIT or 'ü'):"),
        ("value < LIMIT", "value >= LIMIT"),
        ('raise ValueError(f"{value + 1}")', "pass"),
        ("print(value)", "pass"),
        ("return not value", "return bool(value)"),
    }
    assert changed == {SOURCE.replace(old, new) for old, new in expected}


def test_the_mutants_fit_the_code_and_are_python() -> None:
    hand = by_hand(ROOT)
    assert missing(ROOT, [test for mutant in hand for test in mutant.tests]) == []
    for mutant in hand:
        ast.parse(mutant.applied((ROOT / mutant.path).read_text()))
    for path in TARGETS:
        source = (ROOT / path).read_text()
        for mutant in mutants_of(path, source)[::7]:
            ast.parse(mutant.applied(source))


def test_every_accepted_survivor_is_a_mutant_and_has_a_reason() -> None:
    survivors = tomllib.loads((Path(__file__).parent / "survivors.toml").read_text()).get("survivor", [])
    hand = {(mutant.path, mutant.old, mutant.new) for mutant in by_hand(ROOT)}
    for each in survivors:
        mutants = mutants_of(each["path"], (ROOT / each["path"]).read_text())
        known = hand | {(mutant.path, mutant.old, mutant.new) for mutant in mutants}
        assert (each["path"], each["old"], each["new"]) in known, each
        assert each["reason"]


def test_a_killed_mutant_is_not_run_again_until_its_file_changes_and_a_survivor_until_its_tests_do(
    tmp_path: Path,
) -> None:
    killed, survivor, other = mutants_of("file.py", SOURCE)[:3]
    results = Results(tmp_path / "results.jsonl")
    results.add(killed, SOURCE, ["test"], "test_file.py::test_it")
    results.add(survivor, SOURCE, ["test"], "")
    for again in (results, Results(tmp_path / "results.jsonl")):
        assert [again.find(each, SOURCE, ["test"]) is None for each in (killed, survivor, other)] == [
            False,
            False,
            True,
        ]
        assert again.find(killed, SOURCE, ["another test"]) is not None
        assert again.find(survivor, SOURCE, ["another test"]) is None
        assert again.find(killed, f"{SOURCE}# Changed.", ["test"]) is None


def test_as_many_mutants_are_drawn_of_each_area_the_same_for_a_seed() -> None:
    few, more = list(drawn(ROOT, 2, 1)), list(drawn(ROOT, 4, 1))
    areas = [area_of(mutant.path) for mutant in few]
    assert areas == sorted(set(areas)) * 2
    assert set(areas) == {area_of(path) for path in TARGETS}
    assert set(few) < set(more)
    assert few != list(drawn(ROOT, 2, 2))


def test_the_tally_has_the_counts_of_all_areas_those_that_were_not_run_too(tmp_path: Path) -> None:
    tally, listed = tmp_path / "tally.json", Listed()
    hand = by_hand(ROOT)
    Run(Results(tmp_path / "results.jsonl"), 0.0).told(hand, listed, tally)
    known = sum(mutant in listed for mutant in hand)
    assert known
    assert json.loads(tally.read_text()) == {"killed": 0, "survived": 0, "listed": known, "not run": len(hand) - known}

"""The tool that changes the code changes what it says, and fits the code as it is."""

import ast
import tomllib
from pathlib import Path

from tests.mutants.by_hand import by_hand
from tests.mutants.operators import mutants_of
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

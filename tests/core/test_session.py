"""References to policies, and explorations."""

import hashlib

import pytest

from policybridge_core.errors import InvalidError
from policybridge_core.session import Exploration, PolicyReference


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        ("inliner", PolicyReference("inliner")),
        ("inliner@", PolicyReference("inliner")),
        ("inliner@3", PolicyReference("inliner", version=3)),
        ("inliner@stable", PolicyReference("inliner", alias="stable")),
    ],
)
def test_a_reference_is_read_from_text(text: str, reference: PolicyReference) -> None:
    assert PolicyReference.parse(text) == reference
    assert PolicyReference.parse(str(reference)) in (reference, PolicyReference("inliner", alias="latest"))


def test_a_reference_is_by_version_or_by_alias() -> None:
    with pytest.raises(InvalidError, match="ask for version 3 or for 'stable', not both"):
        PolicyReference("inliner", version=3, alias="stable")


def test_an_exploration_is_read_from_text_in_any_order() -> None:
    assert Exploration.parse("seed=7,epsilon=.05,temperature=1e0") == Exploration(7, 1.0, 0.05)
    assert Exploration.parse("epsilon=0") == Exploration()
    assert Exploration.parse(f"temperature=2,seed={2**64 - 1}").seed == 2**64 - 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "temperature=T,epsilon=E,seed=S"),
        ("epsilon=0.1,", "not ''"),
        ("heat=1", "not 'heat=1'"),
        ("epsilon=0.1,epsilon=0.1", "twice"),
        ("seed=1", "has neither"),
        ("epsilon=1_0", "a number"),
        ("epsilon=١", "a number"),
        ("epsilon=nan", "a probability"),
        ("temperature=inf", "0 or more"),
        ("epsilon=0.1,seed=-1", "2⁶⁴ − 1"),
        ("epsilon=0.1,seed=1.0", "2⁶⁴ − 1"),
        (f"epsilon=0.1,seed={'9' * 5000}", "2⁶⁴ − 1"),
    ],
)
def test_a_malformed_exploration_is_refused_with_what_is_wrong(text: str, message: str) -> None:
    with pytest.raises(InvalidError, match=message):
        Exploration.parse(text)


def test_modules_explore_each_by_a_seed_of_its_own_which_is_the_same_everywhere() -> None:
    explored = Exploration(7, 1.0, 0.5)
    digest = hashlib.sha256(b"7\nsrc/a.c").digest()
    assert explored.of_module("src/a.c") == Exploration(int.from_bytes(digest[:8], "big"), 1.0, 0.5)
    assert explored.of_module("src/\udcff.c").seed != explored.of_module("src/a.c").seed

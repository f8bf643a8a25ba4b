"""Which projects are trained on, validated on, and held out: a rule that looks at their names alone."""

from collections.abc import Iterable

from policybridge_train.corpus.parts import Part, part_of
from policybridge_train.tasks.task import Case


def cases_of(cases: Iterable[Case], part: Part) -> list[Case]:
    """Give the cases whose projects are in a part."""
    return [case for case in cases if part_of(case.project) is part]

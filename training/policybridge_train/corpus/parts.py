"""Which projects are trained on, validated on, and held out: a rule that looks at their names alone.

Also the part of a corpus that a command's patterns let through.
"""

import hashlib
from enum import Enum
from typing import Final

from policybridge_core.errors import NotFoundError
from policybridge_train.compiling.options import Selection
from policybridge_train.corpus.description import Corpus, programs_of

_HELD_OUT: Final = 3


_VALIDATION: Final = 5


class Part(Enum):
    """A part of the projects.

    A policy learns from ``TRAINING``; ``VALIDATION`` chooses versions and settings; nobody looks at ``HELD_OUT`` before
    all is chosen.
    """

    TRAINING = "training"
    VALIDATION = "validation"
    HELD_OUT = "held-out"


def part_of(project: str) -> Part:
    """Give a project's part: by its name's SHA-256 a third is held out, a fifth of the others is for validation."""
    number = int(hashlib.sha256(project.encode(errors="surrogateescape")).hexdigest(), 16)
    if number % _HELD_OUT == 0:
        return Part.HELD_OUT
    return Part.VALIDATION if number // _HELD_OUT % _VALIDATION == 0 else Part.TRAINING


def selected(whole: Corpus, selection: Selection, part: Part | None = None) -> Corpus:
    """Give the modules, programs and failures that the patterns let through; see `programs_of`.

    With a pattern of modules there is no program: one without some of its modules would be another program.

    Raises:
        NotFoundError: there is no such module.

    """
    programs = [
        each
        for each in programs_of(whole)
        if selection.has_program(each.name, each.project) and (part is None or part_of(each.project) is part)
    ]
    linked = {name for program in programs for name in program.modules}
    modules = [
        each
        for each in whole.modules
        if selection.has_module(each.name, each.project)
        and (part is None or part_of(each.project) is part)
        and (selection.programs is None or each.name in linked)
    ]
    if not modules:
        raise NotFoundError(
            f"no module of {whole.folder} is asked for by these patterns, or in this part; it has {len(whole.modules)}"
        )
    failures = {name: why for name, why in whole.failures.items() if _may_concern(name, selection, part)}
    return Corpus(whole.folder, modules, programs if selection.modules is None else (), failures)


def _may_concern(failure: str, selection: Selection, part: Part | None) -> bool:
    """Tell whether a failure may be one of the selection: no program is known of a module that does not compile."""
    project = failure.partition("/")[0]
    if selection.programs is not None or (part is not None and part_of(project) is not part):
        return False
    return selection.has_module(failure, project)

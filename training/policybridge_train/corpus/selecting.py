"""The modules, programs and failures of a corpus that a command's patterns and part let through."""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from policybridge_core.errors import NotFoundError
from policybridge_train.compiling.options import Selection
from policybridge_train.corpus.description import Corpus, programs_of
from policybridge_train.corpus.parts import Part
from policybridge_train.corpus.splitting import Split

_BY_FILE: Final = "; a training run that splits by file writes its parts into its folder: --split RUN/split.txt"


def selected(whole: Corpus, selection: Selection, part: Part | None = None, split: Split | None = None) -> Corpus:
    """Give the modules, programs and failures that the patterns let through; see `programs_of`.

    By a ``split`` with rows a program is in the part that all its modules are in. With a pattern of modules there is no
    program: one without some of its modules would be another program.

    Raises:
        NotFoundError: there is no such module.

    """
    of_part = _of_part(part, split or Split())
    within = [each for each in whole.modules if of_part(each.name, each.project)]
    programs = [
        each
        for each in programs_of(replace(whole, modules=within))
        if selection.has_program(each.name, each.project) and all(of_part(name, each.project) for name in each.modules)
    ]
    linked = {name for program in programs for name in program.modules}
    modules = [
        each
        for each in within
        if selection.has_module(each.name, each.project) and (selection.programs is None or each.name in linked)
    ]
    if not modules:
        raise NotFoundError(
            f"no module of {whole.folder} is asked for by these patterns, or in this part; it has {len(whole.modules)}"
            f"{_BY_FILE if part is not None and split is None else ''}"
        )
    failures = {
        name: why
        for name, why in whole.failures.items()
        if _may_concern(name, selection) and of_part(name, _project(name))
    }
    return Corpus(whole.folder, modules, programs if selection.modules is None else (), failures)


def _of_part(part: Part | None, split: Split) -> Callable[[str, str], bool]:
    return lambda name, project: part is None or split.part(name, project) is part


def _project(failure: str) -> str:
    return failure.partition("/")[0]


def _may_concern(failure: str, selection: Selection) -> bool:
    """Tell whether a failure may be one of the selection: no program is known of a module that does not compile."""
    return selection.programs is None and selection.has_module(failure, _project(failure))

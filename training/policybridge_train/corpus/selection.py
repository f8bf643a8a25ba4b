"""The part of a corpus that a command's patterns let through."""

from policybridge_core.errors import NotFoundError
from policybridge_train.compiling.options import Selection
from policybridge_train.corpus.description import Corpus, programs_of
from policybridge_train.corpus.parts import Part, part_of


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

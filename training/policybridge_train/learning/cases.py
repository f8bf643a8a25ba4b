"""The cases of a training run: to learn from, and to choose versions by."""

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from policybridge_core.errors import InvalidError
from policybridge_train.compiling.options import Selection
from policybridge_train.corpus.parts import Part
from policybridge_train.corpus.splitting import Split
from policybridge_train.learning.training import cases_of
from policybridge_train.tasks.raising import told_by
from policybridge_train.tasks.task import Case, Task


@dataclass(frozen=True)
class RunCases:
    """The selected cases of a task, and the split that put them into parts.

    Attributes:
        path: the user's list of parts; ``None``: the split is by project or by file.

    """

    training: Sequence[Case]
    validation: Sequence[Case]
    split: Split
    path: Path | None

    @classmethod
    def of(cls, task: Task, corpus: Path | None, selection: Selection, path: Path | None) -> "RunCases":
        """Select the cases of a task and split them.

        Raises:
            InvalidError: two cases have one name, which is a case's key in the record; there are too few cases; or the
                list at `path` puts none into one of the parts.
            NotFoundError: there is no such list.

        """
        cases = [case for case in _told_apart(task, corpus) if selection.has_module(case.name, case.project)]
        split = Split.of({case.name: case.project for case in cases}) if path is None else Split.read(path)
        training, validation = (cases_of(cases, part, split) for part in (Part.TRAINING, Part.VALIDATION))
        if not (training and validation):
            raise InvalidError(
                f"by {path}, {len(training)} of {len(cases)} cases are for training and {len(validation)} for "
                "validation; there must be some of each"
            )
        return cls(training, validation, split, path)

    @property
    def note(self) -> str | None:
        """What a report says of the split; ``None`` for a split by project."""
        if self.split.rows is None:
            return None
        return f"by {self.path}" if self.path else "held out by file: expect less on other projects"

    @property
    def fingerprint(self) -> str:
        """The counts of the cases and a digest of their names and parts."""
        names = "\n".join(sorted(case.name for case in (*self.training, *self.validation)))
        if self.split.rows is not None:
            names = "\n".join(f"{part.value} {name}" for part, name in self.split.rows) + names
        digest = hashlib.sha256(names.encode(errors="surrogateescape")).hexdigest()[:8]
        return f"{len(self.training)} for training and {len(self.validation)} for validation ({digest})"


def _told_apart(task: Task, corpus: Path | None) -> Sequence[Case]:
    with told_by(task.name, "cases"):
        cases = task.cases(corpus)
    name, times = next(iter(Counter(case.name for case in cases).most_common(1)), ("", 0))
    if times > 1:
        raise InvalidError(f"the task {task.name} gives {times} cases the name {name!r}; each must have one of its own")
    return cases

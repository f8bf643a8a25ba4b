"""The result of each mutant, kept in a file, so that a run can be interrupted and continued."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.mutants.operators import Mutant


class Result(NamedTuple):
    """The result of one mutant.

    Attributes:
        source: digest of the file with the mutant in it.
        tests: digest of the files of tests.
        by: the test that failed; empty if the mutant has survived.

    """

    source: str
    tests: str
    by: str


class Results:
    """The results so far.

    A mutant that was killed is not run again until its file changes, and a survivor until its file or its tests change.

    Args:
        path: of the file, which has a line of JSON for each result.

    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[str, Result] = {}
        for line in path.read_text().splitlines() if path.exists() else []:
            told = json.loads(line)
            self._known[told["source"]] = Result(told["source"], told["tests"], told["by"])

    def find(self, mutant: Mutant, source: str, tests: Sequence[str]) -> Result | None:
        """Give the result of a mutant; ``None`` if it must be run.

        Args:
            mutant: the mutant.
            source: text of its file without the mutant.
            tests: texts of the files of tests.

        """
        known = self._known.get(_digest([mutant.path, mutant.applied(source)]))
        return known if known is not None and (known.by or known.tests == _digest(tests)) else None

    def add(self, mutant: Mutant, source: str, tests: Sequence[str], by: str) -> None:
        """Keep a result."""
        result = Result(_digest([mutant.path, mutant.applied(source)]), _digest(tests), by)
        self._known[result.source] = result
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a") as file:
            file.write(f"{json.dumps({'mutant': str(mutant), **result._asdict()})}\n")


def _digest(texts: Sequence[str]) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()

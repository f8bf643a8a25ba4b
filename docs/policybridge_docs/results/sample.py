"""A sample of the held-out projects' modules, for searches that compile each of them many times."""

import hashlib
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final

from policybridge_train.compiling.module import Module
from policybridge_train.corpus.description import Corpus
from policybridge_train.corpus.parts import Part, part_of

COUNTS: Final = {"c": 16, "c++": 10}
"""Modules by language."""

_OF_PROJECT: Final = 3
_BYTES: Final = range(8_001, 200_000)
"""Of a module's bitcode: smaller ones have nothing to decide, larger ones take long."""


def sample(folder: Path, language: str, count: int | None = None) -> list[str]:
    """Give the modules' names, drawn by the hashes of all names; of a source that was compiled twice, one."""
    found = islice(_drawn(Corpus.open(folder), language), COUNTS[language] if count is None else count)
    return [module.name for module in found]


def _drawn(corpus: Corpus, language: str) -> Iterator[Module]:
    of_project: Counter[str] = Counter()
    sources: set[tuple[str, str]] = set()
    for module in sorted(corpus.modules, key=lambda each: hashlib.sha256(each.name.encode()).digest()):
        if module.language != language or part_of(module.project) is not Part.HELD_OUT:
            continue
        source, fits = (module.project, module.source), module.bitcode.stat().st_size in _BYTES
        if fits and of_project[module.project] < _OF_PROJECT and source not in sources:
            of_project[module.project] += 1
            sources.add(source)
            yield module

"""A project of C that is edited at random: its sources, a header, and its stores of decisions."""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Final

from policybridge_client.decisions import (
    ALL_FUNCTIONS,
    Decision,
    Heading,
    PassChoice,
    Section,
    SiteLog,
    Store,
    format_store,
)

NAME: Final = "policybridge.decisions"
HEADER: Final = "include/shared.h"
SOURCES: Final = ("src/a.c", "src/b.c", "lib/a.c")
STORES: Final = (NAME, f"src/{NAME}")
_CHOICES: Final = (("skip", "early-machinelicm"), ("skip", "loop-reduce"), ("set", "ext-tsp"))
_FUNCTIONS: Final = 4

Logged = Callable[[Path], SiteLog]
"""Compiles a source without a store, and gives the calls that LLVM asks about."""


class EditedProject:
    """A repository whose files change at random; an edit may bring back an earlier text of a file.

    Args:
        root: a new folder.
        random: chooses the edits.
        logged: tells which decisions a store may turn.

    """

    def __init__(self, root: Path, random: Random, logged: Logged) -> None:
        self.root, self._random, self._logged = root, random, logged
        self._past: dict[str, list[bytes | None]] = {name: [None] for name in STORES}
        (root / ".git").mkdir(parents=True)
        self._put(HEADER, b"static inline int shared(int x) { return x * 3 + 1; }\n")
        for name in SOURCES:
            self._put(name, self._source())
        self._edits: Mapping[str, tuple[int, Callable[[], str]]] = {
            "number": (4, self._change_number),
            "store": (6, self._write_store),
            "equal": (2, self._make_equal),
            "gone": (1, self._remove_store),
            "back": (5, self._bring_back),
            "touch": (1, self._touch),
        }

    def edit(self) -> str:
        """Make one edit; say which."""
        weights = [weight for weight, _ in self._edits.values()]
        (name,) = self._random.choices(list(self._edits), weights)
        return f"{name}: {self._edits[name][1]()}"

    def state_of(self, source: str) -> tuple[bytes | None, ...]:
        """Give the content of all files that the object of a source depends on: a store below the root wins."""
        below = self._read(f"{Path(source).parent}/{NAME}") if f"{Path(source).parent}/{NAME}" in STORES else None
        return self._read(source), self._read(HEADER), below, None if below is not None else self._read(NAME)

    @property
    def stores(self) -> list[Path]:
        """The stores that there are."""
        return [self.root / name for name in STORES if (self.root / name).exists()]

    def _source(self) -> bytes:
        lines = ['#include "shared.h"', "int sink(int);"]
        for n in range(_FUNCTIONS):
            number = self._random.randrange(100)
            lines.append(
                f"static int middle{n}(int x) {{ int s = {number}; "
                "for (int i = 0; i < x; i++) s += shared(i) ^ sink(s); "
                f"if (s > {n}) s = sink(s) + sink(s * {n}) + sink(s - 7); return s; }}"
            )
            lines.append(f"int f{n}(int x) {{ return middle{n}(x) + middle{n}(x + 1) + shared(x); }}")
        return "\n".join([*lines, ""]).encode()

    def _change_number(self) -> str:
        name = self._random.choice([HEADER, *SOURCES])
        found = list(re.finditer(rb"\b\d+\b", self._read(name) or b""))
        place = self._random.choice(found)
        text = self._read(name) or b""
        self._put(name, text[: place.start()] + b"%d" % self._random.randrange(100) + text[place.end() :])
        return name

    def _write_store(self) -> str:
        name = self._random.choice(STORES)
        sections = [self._section(name, source) for source in SOURCES if Path(source).is_relative_to(Path(name).parent)]
        self._put(name, format_store(Store(sections)))
        return name

    def _section(self, store: str, source: str) -> Section:
        """Turn about half of the decisions; sometimes all, or none."""
        log, share = self._logged(self.root / source), self._random.choice((0, 0.5, 0.5, 0.5, 1))
        rows = zip(log.keys, log.default, strict=True)
        flips = tuple(Decision(key, not default) for key, default in rows if self._random.random() < share)
        chosen = [PassChoice(ALL_FUNCTIONS, *choice) for choice in _CHOICES if self._random.random() < 0.2]
        path = os.path.relpath(source, Path(store).parent)
        heading = Heading(llvm=22, level="Oz", by="site", digest=self._random.choice((None, log.digest)), path=path)
        return Section(heading, flips, chosen)

    def _make_equal(self) -> str:
        """Give two sources of one name the same text; their decisions may differ."""
        one, other = self._random.sample(("src/a.c", "lib/a.c"), 2)
        self._put(other, self._read(one))
        return f"{other} is {one}"

    def _remove_store(self) -> str:
        name = self._random.choice(STORES)
        self._put(name, None)
        return name

    def _bring_back(self) -> str:
        name = self._random.choice(list(self._past))
        self._put(name, self._random.choice(self._past[name]))
        return name

    def _touch(self) -> str:
        name = self._random.choice([name for name in self._past if (self.root / name).exists()])
        (self.root / name).touch()
        return name

    def _read(self, name: str) -> bytes | None:
        path = self.root / name
        return path.read_bytes() if path.exists() else None

    def _put(self, name: str, content: bytes | None) -> None:
        path = self.root / name
        if content is None:
            path.unlink(missing_ok=True)
        else:
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content)
        self._past.setdefault(name, []).append(content)

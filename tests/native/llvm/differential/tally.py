"""Totals of all runs, in a file that the next run adds to."""

import hashlib
import json
import subprocess
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from tests.native.llvm.differential.comparing import Compared


@dataclass
class Tally:
    """The totals of all comparisons with one compiler and one plugin.

    Attributes:
        compiler: its version.
        plugin: the digest of its file, which holds the list of choices.
        next_seed: of the next run.
        counts: see `Compared`.
        disagreements: as they are printed.

    """

    compiler: str
    plugin: str
    next_seed: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    disagreements: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path, major: str, plugin: Path) -> Self:
        """Read the totals; begin anew where they are of another compiler or plugin."""
        version = subprocess.run([f"clang-{major}", "--version"], capture_output=True, text=True, check=True).stdout
        own = cls(version.splitlines()[0], hashlib.sha256(plugin.read_bytes()).hexdigest())
        if not path.exists():
            return own
        written = json.loads(path.read_bytes())
        read = cls(**{**written, "counts": Counter(written["counts"])})
        return read if (read.compiler, read.plugin) == (own.compiler, own.plugin) else own

    def write(self, path: Path) -> None:
        """Write the totals in place of those that were there."""
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_suffix(".new")
        new.write_text(json.dumps(vars(self), indent=1))
        new.replace(path)

    def add(self, compared: Compared) -> None:
        """Add the result of the next seed."""
        self.next_seed += 1
        self.counts += compared.counts
        self.disagreements += [str(each) for each in compared.disagreements]

    def __str__(self) -> str:
        said = ", ".join(
            f"{self.counts[name]} {name}" for name in ("programs", "modules", "compiles", "choices", "too long")
        )
        return f"{said}: {len(self.disagreements)} disagreements"

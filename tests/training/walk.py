"""Counts the files that one step of `autotune` and one job of `score` enter, and how often control changes file.

    python -m tests.training.walk [--compiler zig] [--plugins DIR]

Counted are the files of this repository's packages (Python), with those of training/policybridge_train apart. A change
of file is a call into a function of another counted file, or a return from one; other code is passed through.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from types import FrameType
from typing import Any, Final

from policybridge_client.cli import main
from policybridge_train.farms.local import LocalFarm
from policybridge_train.tuning.module import ModuleTuning
from tests.client.compilers import write_source
from tests.training.corpora import write_corpus

REPOSITORY: Final = Path(__file__).resolve().parents[2]
ROOTS: Final = ("training", "clients/python", "server", "serdes", "core")


@dataclass
class Walk:
    """The files that were entered, in order of their first entry, and the changes of file."""

    roots: tuple[str, ...] = ROOTS
    files: dict[str, int] = field(default_factory=dict)
    changes: int = 0

    def follow(self, work: Callable[[], Any]) -> Any:
        """Do the work in this thread, and follow it."""
        counted = tuple(f"{REPOSITORY / root}/" for root in self.roots)
        stack: list[str] = [""]

        def hook(frame: FrameType, event: str, _: object) -> None:
            name = frame.f_code.co_filename
            if not name.startswith(counted):
                return
            if event == "call":
                self._enter(stack[-1], name)
                stack.append(name)
            elif event == "return" and len(stack) > 1:
                self._enter(stack.pop(), stack[-1])

        sys.setprofile(hook)
        try:
            return work()
        finally:
            sys.setprofile(None)

    def _enter(self, before: str, after: str) -> None:
        if before != after and before and after:
            self.changes += 1
        if after:
            name = str(Path(after).relative_to(REPOSITORY))
            self.files[name] = self.files.get(name, 0) + (before != after)


def walked(words: list[str], kind: type, method: str, number: int, roots: tuple[str, ...]) -> Walk:
    """Run a command, and follow the call of a method, counted from 0."""
    walk, calls = Walk(roots), 0
    original = getattr(kind, method)

    def followed(self: Any, *arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls - 1 != number:
            return original(self, *arguments)
        return walk.follow(lambda: original(self, *arguments))

    setattr(kind, method, followed)
    try:
        with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err:
            status = main(words)
    finally:
        setattr(kind, method, original)
    if status:
        raise SystemExit(f"{words}: status {status}: {out.getvalue()} {err.getvalue()}")
    return walk


def walks(folder: Path, compiler: str, plugins: str | None, roots: tuple[str, ...] = ROOTS) -> Mapping[str, Walk]:
    """Follow the second step of a search, which tries flips, and the job of a candidate."""
    source = write_source(folder, functions=1).read_text()
    corpus = write_corpus(folder / "corpus", {"p/f.c": source}, compiler=compiler)
    common = ["--corpus", str(corpus.folder), "--compiler", compiler, "--jobs", "1"]
    common += ["--plugins", plugins] if plugins else []
    tune = ["autotune", "--store", str(folder / "tuned.db"), "--budget", "4", *common]
    score = ["score", "--candidate", "flag:-mllvm,-inline-threshold=0", "--no-cache", *common]
    return {
        "autotune step": walked(tune, ModuleTuning, "step", 1, roots),
        "score job": walked(score, LocalFarm, "do", 1, roots),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compiler", default="zig")
    parser.add_argument("--plugins")
    parser.add_argument("--files", action="store_true", help="name the files, with how often each was entered")
    options = parser.parse_args()
    for roots in (ROOTS, ROOTS[:1]):
        with tempfile.TemporaryDirectory() as name:
            for what, walk in walks(Path(name), options.compiler, options.plugins, roots).items():
                print(f"{what}: {len(walk.files)} files, {walk.changes} changes of file; in {', '.join(roots)}")
                for file, entered in walk.files.items() if options.files else ():
                    print(f"  {entered:6} {file}")

"""Small projects, and the command ``policybridge corpus`` on them."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from policybridge_train.corpus.description import Corpus

MAIN: Final = "int helper(int);\nint main(int count, char **words) { return helper(count) + !words; }\n"
HELPER: Final = "int helper(int value) { return 3 * value; }\n"
UNUSED: Final = "int unused(int value) { return 4 * value; }\n"

MAKEFILE: Final = """
all: prog lib.so
libx.a: h.o u.o
\tar rc $@ $^
prog: main.o libx.a
\t$(CC) -o $@ main.o -L. -lx
r.o: h.o u.o
\tld -r -o $@ $^
lib.so: r.o
\t$(CC) -shared -o $@ r.o
"""

SECONDS: Final = 300


def write_project(folder: Path, files: Mapping[str, str]) -> Path:
    """Write a project's files."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def small_project(folder: Path) -> Path:
    """Write a program with a static library of which it needs one object, and a shared library."""
    files = {"main.c": MAIN, "h.c": HELPER, "u.c": UNUSED, "Makefile": MAKEFILE}
    return write_project(folder, files)


def command(*words: object) -> list[str]:
    """Give the command ``policybridge corpus``."""
    return [sys.executable, "-m", "policybridge_client.cli", "corpus", *map(str, words)]


def corpus_command(
    *words: object, cwd: Path, environment: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run ``policybridge corpus`` to its end."""
    return subprocess.run(
        command(*words),
        cwd=cwd,
        env={**os.environ, "XDG_CACHE_HOME": str(cwd / ".cache"), **(environment or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


def record(project: Path, output: Path, *build: str, options: Sequence[str] = ()) -> Corpus:
    """Record a build that succeeds."""
    ended = corpus_command("record", "--output", output, *options, "--", *build, cwd=project)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return Corpus.open(output)


def program_of(corpus: Corpus, name: str) -> tuple[str, tuple[str, ...]]:
    """Give the kind and the modules' names without their project of one program."""
    found = [program for program in corpus.programs if program.name == name]
    assert len(found) == 1, [program.name for program in corpus.programs]
    return found[0].kind, tuple(module.partition("/")[2] for module in found[0].modules)

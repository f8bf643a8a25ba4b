"""What programs of a corpus are run with, so that their instructions can be counted."""

import random
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import msgspec

from policybridge_core.errors import InvalidError
from policybridge_train.compiling.module import Program
from policybridge_train.corpus.description import Corpus

INPUT: Final = "input"
"""The file in the folder where a program is run."""


@dataclass(frozen=True)
class Benchmark:
    """A run of a program.

    Attributes:
        project: of the program.
        program: the name of its file, without folders.
        arguments: of the run. ``input`` among them is the file of the input.
        input: a file that the user named; ``None`` for a text of ours.

    """

    project: str
    program: str
    arguments: tuple[str, ...]
    input: Path | None = None

    def write(self, folder: Path) -> None:
        """Write the input into the folder of the run.

        Raises:
            OSError: it cannot be read or written.

        """
        (folder / INPUT).write_bytes(_text() if self.input is None else self.input.read_bytes())

    def program_of(self, corpus: Corpus) -> Program | None:
        """Find the program."""
        wanted = (self.project, self.program, "executable")
        return next((one for one in corpus.programs if (one.project, Path(one.name).name, one.kind) == wanted), None)


BENCHMARKS: Final = (
    Benchmark("zlib", "minigzip", ("-c", INPUT)),
    Benchmark("lz4", "lz4", ("-9", "-c", INPUT)),
    Benchmark("gzip", "gzip", ("-n", "-c", INPUT)),
    Benchmark("cmark", "cmark", (INPUT,)),
    Benchmark("lzip", "lzip", ("-1", "-c", INPUT)),
    Benchmark("lzlib", "minilzip", ("-1", "-c", INPUT)),
    Benchmark("zopfli", "zopfli", ("-c", "--i1", INPUT)),
    Benchmark("bzip2", "bzip2", ("-c", INPUT)),
)
"""Of Debian's packages. Each takes the same instructions in each run; Lua does not, which seeds its hashes by time."""


class _Row(msgspec.Struct, forbid_unknown_fields=True):
    project: str
    program: str
    arguments: tuple[str, ...] = ()
    input: str = ""


class _Table(msgspec.Struct, forbid_unknown_fields=True):
    benchmark: tuple[_Row, ...]


def read_benchmarks(file: Path) -> Sequence[Benchmark]:
    """Read benchmarks of the user's: TOML, a table ``[[benchmark]]`` for each; paths are relative to the file.

    Raises:
        InvalidError: it cannot be read, or is not of this form.

    """
    try:
        rows = msgspec.convert(tomllib.loads(file.read_text(encoding="utf-8")), _Table).benchmark
    except (OSError, ValueError, msgspec.ValidationError) as error:
        raise InvalidError(
            f"{file} names no benchmarks: {error}; it has a table [[benchmark]] with project, program, arguments and "
            "input for each"
        ) from error
    return [
        Benchmark(row.project, row.program, row.arguments, file.parent / row.input if row.input else None)
        for row in rows
    ]


@cache
def _text() -> bytes:
    """Give 40 KB of made-up prose in Markdown, the same in each process."""
    chance = random.Random(1)  # noqa: S311 - no secret
    words = ["".join(chance.choices("etaoinshrdlu", k=2 + n % 8)) for n in range(800)]
    return "\n".join(_paragraphs(chance, words)).encode()


def _paragraphs(chance: random.Random, words: Sequence[str]) -> Iterator[str]:
    for number in range(250):
        title, *line = chance.choices(words, k=24)
        yield f"# {title}\n\n* *{line[0]}* and [{line[1]}](#{number}) with `{line[2]}`\n\n{' '.join(line)}.\n"

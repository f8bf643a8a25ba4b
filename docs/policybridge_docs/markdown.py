"""Pieces of Markdown."""

import re
from collections.abc import Iterable, Iterator, Sequence


def code(text: str) -> str:
    """Give ``text`` as code, in a table or elsewhere."""
    return f"`{text.replace('|', '¦')}`"


def table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Give the lines of a table, and an empty one; nothing where there are no rows."""
    listed = list(rows)
    if not listed:
        return
    for row in (heading, ["---"] * len(heading), *listed):
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |"
    yield ""


def from_rst(text: str) -> str:
    """Give a docstring's text with single backticks around code in the place of double ones."""
    return re.sub(r"``([^`]+)``", r"`\1`", text)


def prose(text: str) -> Iterator[str]:
    """Give the lines of a comment, whose indented lines are as they stand, and an empty one; nothing for no text."""
    for block in re.split(r"\n\s*\n", text.strip("\n")):
        if not block.strip():
            continue
        lines = block.splitlines()
        if any(re.match(r" {3}", line) for line in lines):
            yield from ("```text", *lines, "```", "")
        else:
            yield from (*(line.strip() for line in lines), "")

"""The pages of the documentation, and the code blocks in them.

A comment in front of a block says what the block alone cannot say; readers of the rendered page do not see it:

=================================  ====================================================================================
``<!-- not run: needs clang-22 -->``  why the block is not run; one of `REASONS`
``<!-- before: COMMAND -->``       a shell command that is run before the block
``<!-- needs: TOOL -->``           a program without which this block and those after it are not run
=================================  ====================================================================================

A block whose first line is a comment with a path, ``# policies/mine/policy.toml``, is the file of that path: it is
written into the page's folder when its turn comes.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]

GIVEN: Final = Path(__file__).parent / "given"
"""What the reader of a page has already."""

PAGES: Final = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
    ROOT / "proto" / "SOCKET.md",
]

LANGUAGES: Final = ("c", "cmake", "console", "cpp", "json", "proto", "python", "text", "toml", "yaml")

REASONS: Final = ("a fragment", "needs ", "shows ", "takes ")
"""How a reason begins for which a block is not run: a fragment of a program, something that must be installed, a form
or an output that is shown, or more time than a test has."""

_FENCE: Final = re.compile(r"^```(\w*)$")
_COMMENT: Final = re.compile(r"^<!-- (not run|before|needs): (.+) -->$")
_PATH: Final = re.compile(r"^(?:#|//) ((?:[\w.-]+/)*[\w-]+\.(?:toml|py|c|cpp|proto|build|txt))(?:\n|:)")


@dataclass(frozen=True)
class Block:
    """A code block of a page.

    Attributes:
        page: the file that it stands in.
        line: of its first fence, from 1.
        language: the tag of the fence.
        text: what is between the fences.
        reason: why it is not run; empty where it is run.
        before: a shell command that is run before it; empty for none.
        needs: a program that it needs; empty for none but those of a test environment.
        heading: of the section that it stands in.

    """

    page: Path
    line: int
    language: str
    text: str
    reason: str = ""
    before: str = ""
    needs: str = ""
    heading: str = ""

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def path(self) -> str | None:
        """The file that the block is, if its first line names one."""
        match = _PATH.match(self.text)
        return match[1] if match else None


def blocks(page: Path) -> Iterator[Block]:
    """Give the code blocks of ``page`` in their order."""
    lines = page.read_text(encoding="utf-8").splitlines()
    said: dict[str, str] = {}
    number, heading = 0, ""
    while number < len(lines):
        fence, comment = _FENCE.match(lines[number]), _COMMENT.match(lines[number])
        if fence:
            end = lines.index("```", number + 1)
            text = "\n".join(lines[number + 1 : end]) + "\n"
            reason, before, needs = (said.get(word, "") for word in ("not run", "before", "needs"))
            yield Block(page, number + 1, fence[1], text, reason, before, needs, heading)
            number = end
        elif lines[number].startswith("#"):
            heading = lines[number].lstrip("# ")
        said = {**said, comment[1]: comment[2]} if comment else {}
        number += 1

"""Reads the declarations of a C or C++ header, and the comments above them.

It goes by the lines, as clang-format leaves them: a declaration begins in the first column, and ends with the line in
which its brackets are closed. Declarations that follow each other without an empty line or a comment share the comment.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

_PASSED_OVER: Final = re.compile(
    r"#(?!define PB_\w+ \S)|#define PB_EXPORT|(namespace \w+|extern \"C\") \{|\}|(struct|class) \w+;$"
)
"""Lines that declare nothing for a reader: guards, includes, opened and closed namespaces, forward declarations."""

_HIDDEN: Final = re.compile(r"^namespace detail \{$.*?^\} // namespace detail$", re.MULTILINE | re.DOTALL)
_DIRECTIVES: Final = re.compile(r"^#.*\n", re.MULTILINE)
_PRIVATE: Final = re.compile(r"^private:$.*?(?=^\})", re.MULTILINE | re.DOTALL)
_TYPE: Final = re.compile(r"^(template <.*> )?(typedef )?(struct|class|enum|union)\b")
_COMMENT: Final = re.compile(r"(?:///[^\n]*\n)+|/\*\*.*?\*/\n", re.DOTALL)
_MARK: Final = re.compile(r"^(///|/\*\*| \*) ?")

_NAMES: Final = re.compile(
    r"^#define (\w+)"
    r"|\(\*(\w+)\)\("  # a pointer to a function
    r"|^(?:template <.*> )?(?:class|(?:typedef )?struct|enum class) (?:\[\[\w+\]\] )?(\w+)"
    r"|(\w+)(?:\(|\{\"| = |;$)",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Entry:
    """A comment and its declarations.

    Attributes:
        comment: without its marks; empty for none.
        text: one or more declarations; empty if the comment is about the file.

    """

    comment: str
    text: str

    @property
    def name(self) -> str:
        """The names that are declared."""
        names = (_name(text) for text in self.text.split("\n") if text and not text.startswith((" ", "}", "enum {")))
        return ", ".join(dict.fromkeys(filter(None, names)))


def _name(line: str) -> str:
    match = _NAMES.search(line.replace("PB_EXPORT ", ""))
    return next(filter(None, match.groups())) if match else ""


def entries(header: str) -> Iterator[Entry]:
    """Give the comments and the declarations of the text of a header, in their order."""
    left = _HIDDEN.sub("", header)
    comment, declared = "", list[str]()
    while left:
        said = _COMMENT.match(left)
        if said or left.startswith("\n"):
            yield from _entry(comment, declared)
            comment, declared = _text(said[0]) if said else "", []
            left = left[said.end() if said else 1 :]
            continue
        line, _, behind = left.partition("\n")
        if not _PASSED_OVER.match(line):
            declared.append(_declaration(left))
            behind = left[len(declared[-1]) + 1 :]
        left = behind
    yield from _entry(comment, declared)


def _entry(comment: str, declared: Sequence[str]) -> Iterator[Entry]:
    if comment or declared:
        yield Entry(comment, "\n".join(map(_shown, declared)))


def _declaration(text: str) -> str:
    """Give the lines at the front of ``text`` in which its brackets are closed again."""
    depth, lines = 0, list[str]()
    for line in text.splitlines():
        lines.append(line)
        depth += sum(map(line.count, "({[")) - sum(map(line.count, ")}]"))
        if depth <= 0 and (line.endswith((";", "}")) or line.startswith("#")):
            break
    return "\n".join(lines)


def _shown(declaration: str) -> str:
    """Return a declaration without private members, and a function without its body."""
    if _TYPE.match(declaration):
        return re.sub(r"\n\n+\}", "\n}", _PRIVATE.sub("", _DIRECTIVES.sub("", declaration)))
    head, brace, _ = declaration.partition(" {\n")
    return f"{head};" if brace and "(" in head else declaration


def _text(comment: str) -> str:
    """Give a comment without its marks."""
    lines = (_MARK.sub("", line).removeprefix("@name ") for line in comment.replace("*/", "").splitlines())
    return "\n".join(line for line in lines if not line.startswith("@")).strip()

"""Figures in pages. The comment after a figure has the figure's key; readers do not see the comment.

``takes 9.16 %<!--=scores:cpp.text abs--> off`` shows the figure ``cpp.text`` of ``results/scores.json`` without its
sign; without ``abs``, a change has its sign. An interval stands between the unit and the comment:
``−9.16 % (−14.00 to −4.40)<!--=scores:cpp.text-->``.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from policybridge_docs.results.figures import Figure, Results

UNITS: Final = (
    *("%", "ns", "µs", "ms", "s", "seconds", "minutes", "hours"),
    *("bytes", "kB", "KB", "MB", "GB"),
    *("decisions/s", "decisions", "times", "modules", "objects", "programs", "compiles", "trees"),
)
"""A number with one of these units is a figure. Limits have KiB, MiB and GiB, measurements kB and MB."""

SPECIFIED_COLUMNS: Final = ("advice", "default", "shape")
"""Headers of table columns whose numbers are not measured."""

_NUMBER: Final = r"[−+±]?\d+(?:,\d{3})*(?:\.\d+)?"
_UNIT: Final = rf" ?(?:{'|'.join(map(re.escape, UNITS))})(?![\w/-])"
_INTERVAL: Final = rf" \({_NUMBER} to {_NUMBER}\)"
_MARK: Final = r"<!--=(?P<name>[\w-]+):(?P<key>[^ >]+?)(?P<form> abs)?-->"
_FIGURE: Final = rf"(?P<number>{_NUMBER})(?P<unit>{_UNIT})?(?P<interval>{_INTERVAL})?(?P<bold>\**)"
_MARKED: Final = re.compile(_FIGURE + _MARK)
_UNMARKED: Final = re.compile(rf"(?<![\w.,/−+-]){_NUMBER}{_UNIT}")
_CELL: Final = re.compile(rf"\**{_NUMBER}(?:{_INTERVAL})?(?: / {_NUMBER})*\**")
_CODE: Final = re.compile(r"(?s:^```.*?^```$)|(`+)[^`\n].*?\1", re.MULTILINE)
_COMMENT: Final = re.compile(r"<!--.*?-->", re.DOTALL)


@dataclass(frozen=True)
class Marked:
    """A figure's key, its text ``shown`` on a page, and its text ``wanted`` by the results (``None``: no such key)."""

    key: str
    shown: str
    wanted: str | None


def marked(page: str, results: Mapping[str, Results]) -> Iterator[Marked]:
    """Give each figure of a page that has a key."""
    for match in _MARKED.finditer(page):
        shown = match[0].removesuffix(_comment(match))
        yield Marked(f"{match['name']}:{match['key']}", shown, _wanted(match, results))


def keys(page: str) -> set[str]:
    """Give the key of each mark of a page, as ``NAME:KEY``."""
    return {f"{match['name']}:{match['key']}" for match in re.finditer(_MARK, page)}


def rewritten(page: str, results: Mapping[str, Results]) -> str:
    """Give a page with the results' text for each marked figure; a figure whose key the results lack stays."""

    def new(match: "re.Match[str]") -> str:
        wanted = _wanted(match, results)
        return match[0] if wanted is None else wanted + _comment(match)

    return _MARKED.sub(new, page)


def unmarked(page: str) -> Iterator[tuple[int, str]]:
    """Give the line and the text of each figure that has no key.

    A figure is a number with a unit of `UNITS`, or a table's cell that is a number alone. Code and the columns of
    `SPECIFIED_COLUMNS` are left out.
    """
    blank = _COMMENT.sub(_blank, _CODE.sub(_blank, _MARKED.sub(_blank, page)))
    header: list[str] = []
    for number, line in enumerate(blank.splitlines(), 1):
        yield from ((number, match[0]) for match in _UNMARKED.finditer(line))
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        header = header if header and cells else cells
        yield from ((number, cell) for head, cell in zip(header, cells, strict=False) if _is_figure(head, cell))


def _is_figure(head: str, cell: str) -> bool:
    return head not in SPECIFIED_COLUMNS and _CELL.fullmatch(cell) is not None


def _wanted(match: "re.Match[str]", results: Mapping[str, Results]) -> str | None:
    figure = _find(match["name"], match["key"], results)
    if figure is None:
        return None
    unit = match["unit"] and match["unit"].replace(match["unit"].strip(), figure.unit)
    interval = figure.interval if match["interval"] else ""
    return f"{figure.number(absolute=bool(match['form']))}{unit or ''}{interval}{match['bold']}"


def _find(name: str, key: str, results: Mapping[str, Results]) -> Figure | None:
    return results[name].figures.get(key) if name in results else None


def _comment(match: "re.Match[str]") -> str:
    return f"<!--={match['name']}:{match['key']}{match['form'] or ''}-->"


def _blank(match: "re.Match[str]") -> str:
    return re.sub(r"[^\n]", " ", match[0])

"""A report as an HTML page in one file that needs no network: text, tables and plotly's figures."""

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final

_HEAD: Final = """\
<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<style>
body {{ font: 15px sans-serif; margin: 2em auto; max-width: 80em; padding: 0 1em }}
table {{ border-collapse: collapse; margin: 1em 0; font-variant-numeric: tabular-nums }}
td, th {{ padding: .2em .7em; text-align: right; border-bottom: 1px solid #ddd; vertical-align: top }}
td {{ overflow-wrap: anywhere }}
td:first-child, th:first-child, .words td, .words th {{ text-align: left }}
pre {{ background: #f4f4f4; padding: .6em; overflow-x: auto; user-select: all }}
</style></head><body>
<h1>{title}</h1>
"""


class ReportPage:
    """A page whose parts stand in the order in which they were added.

    Args:
        title: of the page, as text.

    """

    def __init__(self, title: str) -> None:
        self._parts = [_HEAD.format(title=escape(title))]
        self._drawn = False

    def add(self, tag: str, text: str) -> None:
        """Add an element, such as ``h2`` or ``p``, with a text."""
        self._parts.append(f"<{tag}>{escape(text)}</{tag}>\n")

    def add_html(self, html: str) -> None:
        """Add HTML as it is."""
        self._parts.append(html)

    def draw(self, figures: Iterable[Any]) -> None:
        """Add figures of plotly."""
        for figure in figures:
            # plotly's library is 4 MB: only the first figure brings it.
            self._parts.append(figure.to_html(full_html=False, include_plotlyjs=not self._drawn))
            self._drawn = True

    def table(
        self, columns: Sequence[str], rows: Iterable[Sequence[str]], title: str = "", *, words: bool = False
    ) -> None:
        """Add a table with its title; nothing if it has no rows.

        Args:
            columns: the names of the columns.
            rows: the texts of the cells.
            title: stands above the table; empty for none.
            words: whether all columns are aligned to the left, as the first one is.

        """
        cells = ["".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows]
        if not cells:
            return
        if title:
            self.add("h3", title)
        head = "".join(f"<th>{escape(column)}</th>" for column in columns)
        body = "".join(f"<tr>{row}</tr>" for row in cells)
        kind = ' class="words"' if words else ""
        self._parts.append(f"<table{kind}><tr>{head}</tr>{body}</table>\n")

    def write(self, file: Path) -> None:
        """Write the page; characters that UTF-8 cannot hold are escaped.

        Raises:
            OSError: it cannot be written.

        """
        file.write_text("".join([*self._parts, "</body></html>\n"]), encoding="utf-8", errors="backslashreplace")

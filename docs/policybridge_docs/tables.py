"""Finds tables whose first column has whole commands, so that the site's style lets these break."""

import re
from typing import Final

_TABLE: Final = re.compile(r"<table>.*?</table>", re.DOTALL)
_FIRST: Final = re.compile(r"<tr>\s*<td[^>]*>(.*?)</td>", re.DOTALL)
_CODE: Final = re.compile(r"<code>(.*?)</code>", re.DOTALL)

LONGEST: Final = 32
"""Characters of code in a first column that stay on one line: an option and its value."""


def with_commands_that_break(page: str) -> str:
    """Give the HTML of a page with such tables within ``<div class="commands">``."""
    return _TABLE.sub(
        lambda table: f'<div class="commands">{table[0]}</div>' if _has_command(table[0]) else table[0], page
    )


def _has_command(table: str) -> bool:
    return any(len(code) > LONGEST for cell in _FIRST.findall(table) for code in _CODE.findall(cell))

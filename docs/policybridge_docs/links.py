"""Rewrites links: pages link by paths in the repository, which differ from those of the site."""

import re
from collections.abc import Mapping
from pathlib import Path
from posixpath import relpath
from typing import Final

ROOT: Final = Path(__file__).parents[2]

SOURCES: Final = "https://github.com/policybridge/policybridge/blob/main/"
"""The base of links to files without a page. Readers follow such a link; a page fetches nothing from it."""

PAGES: Final[Mapping[str, str]] = {
    "README.md": "overview.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "examples/README.md": "examples.md",
    "examples/jax/README.md": "examples-jax.md",
    "proto/SOCKET.md": "reference/socket.md",
    "proto/policybridge/v1": "reference/grpc.md",
    "examples": "examples.md",
}
"""Files outside of docs/ that have a page: path → page."""

_LINK: Final = re.compile(r"(\]\()(?!https?://|#)([^)#\s]+)((?:#[^)\s]*)?\))")
_CODE: Final = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)


def with_site_links(markdown: str, page: str) -> str:
    """Give the text of a page with its links as they are on the site.

    Args:
        markdown: the text, whose links are relative to ``page``.
        page: path of the page in the repository.

    """
    folder = (ROOT / page).parent
    here = _page(page) or page

    def linked(match: "re.Match[str]") -> str:
        before, target, behind = match.groups()
        file = (folder / target).resolve()
        if not (file.exists() and file.is_relative_to(ROOT)):
            return match[0]
        name = file.relative_to(ROOT).as_posix()
        there = _page(name)
        return f"{before}{f'{SOURCES}{name}' if there is None else relpath(there, Path(here).parent)}{behind}"

    # Every second part is a block of code.
    parts = _CODE.split(markdown)
    return "".join(part if number % 2 else _LINK.sub(linked, part) for number, part in enumerate(parts))


def _page(name: str) -> str | None:
    """Return the site's page of a file of the repository; ``None`` if it has none."""
    return PAGES.get(name) or (name.removeprefix("docs/") if name.startswith("docs/") else None)

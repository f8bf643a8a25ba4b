"""The version that the site is of: the newest one in CHANGELOG.md."""

import re
from typing import Final

from policybridge_docs.links import ROOT

_HEADING: Final = re.compile(r"^## (\S+)(?: \((.+)\))?$", re.MULTILINE)


def version() -> tuple[str, str]:
    """Give the newest version of the changelog, and what stands behind it: a date, or ``unreleased``.

    Raises:
        ValueError: the changelog has no heading of a version.

    """
    found = _HEADING.search((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
    if found is None:
        raise ValueError("CHANGELOG.md has no heading such as '## 0.1.0 (2026-12-01)'")
    return found[1], found[2] or ""

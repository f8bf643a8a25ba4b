"""Links between the pages lead somewhere."""

import re
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT

_LINK = re.compile(r"\[[^\]]*\]\((?!https?://)([^)#\s]*)(?:#([^)\s]+))?\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_CODE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def _anchors(page: Path) -> set[str]:
    """Give the anchors of the headings, as GitHub makes them."""
    headings = _HEADING.findall(_CODE.sub("", page.read_text(encoding="utf-8")))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CHANGELOG.md"], ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_file_and_a_heading_that_exist(page: Path) -> None:
    for target, anchor in _LINK.findall(_CODE.sub("", page.read_text(encoding="utf-8"))):
        file = (page.parent / target).resolve() if target else page
        assert file.exists(), f"{page.name} links to {target}, which does not exist"
        if anchor:
            assert anchor in _anchors(file), f"{page.name} links to {target}#{anchor}; there are {_anchors(file)}"


def test_links_lead_from_the_first_page_to_every_other_page() -> None:
    folder = ROOT / "docs"
    found, waiting = set[Path](), [folder / "README.md"]
    while waiting:
        page = waiting.pop()
        found.add(page)
        targets = {target for target, _ in _LINK.findall(_CODE.sub("", page.read_text(encoding="utf-8")))}
        waiting += [folder / name for name in targets if (folder / name) in set(folder.glob("*.md")) - found]
    assert set(folder.glob("*.md")) - found == set()

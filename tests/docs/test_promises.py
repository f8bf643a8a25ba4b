"""Each sentence that promises something stands on its page, and its tests are there; `UNHELD` counts the others."""

import ast
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.docs.promising import plain, promising

ROOT = Path(__file__).parents[2]
_READ = tomllib.loads((Path(__file__).parent / "promises.toml").read_text())
PROMISES = _READ["promise"]
UNHELD: dict[str, int] = _READ["unheld"]
"""Numbers of sentences with a promising word (`tests.docs.promising.WORDS`) and without an entry, by page."""


@cache
def names(file: Path) -> set[str]:
    """Give the functions of a file of tests."""
    return {
        node.name
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise["sentence"][:60])
def test_a_promise_stands_on_its_page_and_its_tests_are_there(promise: dict[str, Any]) -> None:
    assert plain(promise["sentence"]) in plain((ROOT / promise["page"]).read_text())
    assert promise["tests"]
    for test in promise["tests"]:
        file, _, name = test.partition("::")
        assert name.startswith("test_")
        assert name in names(ROOT / file), test


def test_all_that_one_can_rely_on_is_promised() -> None:
    page = (ROOT / "README.md").read_text()
    section = page[page.index("## What you can rely on") :]
    points = [line for line in section[: section.index("\n## ", 1)].splitlines() if line.startswith("- ")]
    own = [plain(promise["sentence"]) for promise in PROMISES if promise["page"] == "README.md"]
    assert points
    assert [point for point in points if not any(sentence in plain(point) for sentence in own)] == []


def unheld(page: str) -> list[str]:
    """Give the sentences of a page with a promising word that no entry names a part of, or a whole that has them."""
    own = [plain(promise["sentence"]) for promise in PROMISES if promise["page"] == page]
    return [part for part in promising(ROOT / page) if not any(each in part or part in each for each in own)]


@pytest.mark.parametrize("page", ["README.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")))])
def test_no_page_promises_more_than_before_without_a_test(page: str) -> None:
    """Lower a page's number when a sentence gets an entry; do not raise it."""
    assert len(unheld(page)) <= UNHELD.get(page, 0), unheld(page)

"""Each sentence that promises something stands on its page, and its tests are there; `unheld.toml` has the others."""

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
_UNHELD = tomllib.loads((Path(__file__).parent / "unheld.toml").read_text())
NO_PROMISES, OPEN = _UNHELD["no_promise"], _UNHELD.get("open", [])

MOST_OPEN = 0
"""Promises that no test holds; the number may only fall."""


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


@pytest.mark.parametrize("judged", [*NO_PROMISES, *OPEN], ids=lambda judged: judged["sentence"][:60])
def test_a_sentence_that_no_test_holds_stands_on_its_page_with_a_reason(judged: dict[str, Any]) -> None:
    assert plain(judged["sentence"]) in plain((ROOT / judged["page"]).read_text())
    assert judged.get("why") or judged.get("test")


def test_no_more_promises_than_before_are_without_a_test() -> None:
    assert len(OPEN) <= MOST_OPEN


def unjudged(page: str) -> list[str]:
    """Give the sentences of a page with a promising word that no entry names a part of, or a whole that has them."""
    own = [plain(each["sentence"]) for each in [*PROMISES, *NO_PROMISES, *OPEN] if each["page"] == page]
    return [part for part in promising(ROOT / page) if not any(each in part or part in each for each in own)]


@pytest.mark.parametrize("page", ["README.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")))])
def test_each_promising_sentence_of_a_page_is_held_by_a_test_or_judged(page: str) -> None:
    assert unjudged(page) == []

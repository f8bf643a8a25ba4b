"""Each sentence that promises something stands on its page, and its tests are there."""

import ast
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PROMISES = tomllib.loads((Path(__file__).parent / "promises.toml").read_text())["promise"]


def plain(text: str) -> str:
    return " ".join(text.split())


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

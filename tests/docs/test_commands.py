"""Pages that name commands, suites and folders of this repository name those that there are."""

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from policybridge_bench.command import SCENARIOS
from tests.docs.pages import ROOT, blocks
from tests.docs.shell import commands

_PAGES = [
    ROOT / "CONTRIBUTING.md",
    *(ROOT / "docs" / f"{name}.md" for name in ("benchmarks", "gallery", "testing")),
]
_TARGETS = set(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


@pytest.fixture(params=_PAGES, ids=lambda page: page.name)
def text(request: pytest.FixtureRequest) -> str:
    page: Path = request.param
    return page.read_text(encoding="utf-8")


def test_every_make_target_that_is_named_exists(text: str) -> None:
    assert set(re.findall(r"(?:`|\$ )make ([a-z][a-z0-9-]*)", text)) <= _TARGETS


def test_every_module_and_measurement_that_is_named_exists(text: str) -> None:
    for module in re.findall(r"python -m ((?:policybridge|tests)[\w.]*)", text):
        assert find_spec(module), module
    assert set(re.findall(r"policybridge bench ([a-z]+)", text)) <= set(SCENARIOS.names())


def test_every_suite_that_is_named_exists(text: str) -> None:
    for path in re.findall(r"\btests/[\w/.-]*\w", text):
        assert (ROOT / path).exists(), path


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("tutorial-*.md")), ids=lambda page: page.stem)
def test_a_tutorial_takes_at_most_ten_commands(page: Path) -> None:
    consoles = [block.text for block in blocks(page) if block.language == "console"]
    assert 1 <= sum(len(list(commands(text))) for text in consoles) <= 10


def test_ci_runs_what_the_page_says_and_nothing_else() -> None:
    page = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
    said = set(re.findall(r"^\| `make ([\w-]+)` \|.*\| yes \|$", page, re.MULTILINE))
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert said == set(re.findall(r"^make (?:--jobs \d+ )?([\w-]+)", script, re.MULTILINE))

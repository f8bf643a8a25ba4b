"""Each figure of README and docs has a key, and shows what the results file says for this key."""

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
import pytest

from policybridge_docs.results import pages, parts, picture
from policybridge_docs.results.__main__ import PAGES
from policybridge_docs.results.figures import FOLDER, Figure, Results, bundled_digest, read_results
from tests.docs.pages import ROOT

RESULTS: Final = read_results()
TEXTS: Final = {page: page.read_text(encoding="utf-8") for page in PAGES}
_SPECIFIED: Final = tomllib.loads((ROOT / "docs/policybridge_docs/results/specified.toml").read_text(encoding="utf-8"))
PICTURE: Final = picture.FILE.read_text(encoding="utf-8")
PUBLISHED: Final = "published"


def wrong(results: dict[str, Results]) -> Iterator[str]:
    """Say which figures of the pages differ from the results."""
    for page, text in TEXTS.items():
        for each in pages.marked(text, results):
            if each.shown != each.wanted:
                yield f"{page.name}: {each.key} is {each.wanted} and the page shows {each.shown}; run make figures"
    if picture.drawn(results["demo"]) != PICTURE:
        yield from (f"{picture.FILE.name}: {key} is drawn otherwise; run make figures" for key in picture.KEYS)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_measured_figure_has_a_key(page: Path) -> None:
    specified = {*_SPECIFIED["every"], *_SPECIFIED["pages"].get(page.stem, ())}
    without = [f"line {line}: {shown}" for line, shown in pages.unmarked(TEXTS[page]) if shown not in specified]
    assert without == [], (
        f"{page.name} has figures without a key: measure them by a part of make results and add <!--=PART:KEY-->; "
        "a limit or a default belongs into docs/policybridge_docs/results/specified.toml"
    )


def test_every_marked_figure_shows_what_its_results_file_says() -> None:
    assert list(wrong(RESULTS)) == []


def test_every_mark_stands_behind_a_number() -> None:
    for page, text in TEXTS.items():
        assert {each.key for each in pages.marked(text, RESULTS)} == pages.keys(text), page.name


@pytest.mark.parametrize("key", sorted(f"{name}:{key}" for name, each in RESULTS.items() for key in each.figures))
def test_a_change_of_any_figure_in_any_results_file_is_noticed(key: str) -> None:
    name, _, figure = key.partition(":")
    for changed in _changed(RESULTS[name].figures[figure]):
        figures = {**RESULTS[name].figures, figure: changed}
        results = {**RESULTS, name: msgspec.structs.replace(RESULTS[name], figures=figures)}
        assert [line for line in wrong(results) if f": {key} is" in line], f"no page shows {changed}"


def _changed(figure: Figure) -> Iterator[Figure]:
    """Change the value by one unit of its last shown digit, and each end of the interval."""
    step = 10.0**-figure.digits
    yield msgspec.structs.replace(figure, value=figure.value + step)
    yield msgspec.structs.replace(figure, value=figure.value - step)
    if figure.low is not None and figure.high is not None:
        yield msgspec.structs.replace(figure, low=figure.low - step)
        yield msgspec.structs.replace(figure, high=figure.high + step)


@pytest.mark.parametrize("name", RESULTS)
def test_results_of_the_bundled_policy_are_those_of_the_policy_that_is_bundled(name: str) -> None:
    if RESULTS[name].policy:
        bundled = {bundled_digest(policy) for policy in ("inliner", "size")}
        assert RESULTS[name].policy in bundled, f"measure again: make results PARTS={name}"


@pytest.mark.parametrize("name", RESULTS)
def test_results_name_their_command_commit_date_and_machine_or_their_source(name: str) -> None:
    results = RESULTS[name]
    if name == PUBLISHED:
        assert all(figure.source for figure in results.figures.values())
    else:
        assert name in parts.PARTS
        assert all((results.command, results.commit, results.date, results.machine))
        assert not any(figure.source for figure in results.figures.values())


@pytest.mark.parametrize(
    ("shown", "number"),
    [
        (Figure(58487.1, digits=-2), "58,500"),
        (Figure(-9.1649, digits=2, signed=True), "−9.16"),
        (Figure(0.14, digits=1, signed=True), "+0.1"),
        (Figure(-0.004, digits=2, signed=True), "0.00"),
        (Figure(21.4), "21"),
    ],
)
def test_a_figure_is_shown_with_its_digits_and_its_sign(shown: Figure, number: str) -> None:
    assert shown.number() == number


def test_a_page_is_rewritten_with_the_figures_of_the_results() -> None:
    figures = {"text": Figure(-5.04, "%", 1, signed=True, low=-6.0, high=-4.0), "rate": Figure(1250, "decisions/s")}
    results = {"new": Results(figures=figures)}
    page = (
        "| **1,000**<!--=new:rate--> | −9.2 % (−9.9 to −8.0)<!--=new:text--> |\ntakes 9.2 %<!--=new:text abs--> off\n"
    )
    assert pages.rewritten(page, results) == (
        "| **1,250**<!--=new:rate--> | −5.0 % (−6.0 to −4.0)<!--=new:text--> |\ntakes 5.0 %<!--=new:text abs--> off\n"
    )


@pytest.mark.parametrize(
    ("line", "figures"),
    [
        ("takes 7 % off", ["7 %"]),
        ("| size | 1,234 |", ["1,234"]),
        ("| **85 / 92** |", ["**85 / 92**"]),
        ("at most 16 KiB, in 3 steps of version 1.2", []),
        ("`--share 10%` and 5 µs<!--=speed:key-->", []),
        ("```text\n21 µs\n```", []),
        ("| key | default |\n|---|---|\n| `x` | 60 |", []),
        ("| key | measured |\n|---|---|\n| `x` | 60 |", ["60"]),
    ],
)
def test_a_number_with_a_unit_or_alone_in_a_cell_is_a_figure(line: str, figures: list[str]) -> None:
    assert [shown for _, shown in pages.unmarked(line)] == figures


def test_a_results_file_of_another_form_is_refused_with_the_cure(tmp_path: Path) -> None:
    (tmp_path / "speed.json").write_text('{"figures": {"rate": 7}}')
    with pytest.raises(Exception, match=r"speed\.json is no file of figures: .*make results"):
        read_results(tmp_path)


def test_there_are_results() -> None:
    assert FOLDER.is_dir()
    assert RESULTS

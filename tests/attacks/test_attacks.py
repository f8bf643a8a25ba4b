"""The attack table: it is made from real attacks, and says which promises do not hold."""

import re
from pathlib import Path

import pytest

from tests.attacks.attacks import ATTACKS
from tests.attacks.command import judge, main
from tests.attacks.doors import ATTACKS as DOORS
from tests.attacks.measure import Row


def row(port: str, *, longest: float = 0.01, most: int = 80_000_000, after: int = 70_000_000) -> Row:
    during = [0.001] * 50 + [longest]
    return Row("rapid-reset", port, [0.001] * 50, during, 0.01, 0, True, (70_000_000, most, after))


def test_an_attack_on_both_ports_is_measured_from_a_client_beside(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["--attacks", "settings-flood", "--seconds", "0.5"])
    shown = capsys.readouterr().out
    assert status in (0, 1)
    assert shown.count("settings-flood") >= 2
    assert "nan" not in shown


def test_an_unknown_attack_is_refused_with_the_names_that_there_are() -> None:
    with pytest.raises(Exception, match=f"unknown attack 'flood'; there are {next(iter(ATTACKS))}"):
        main(["--attacks", "flood"])


@pytest.mark.parametrize(
    ("ours", "broken"),
    [
        (row("grpc"), []),
        (row("grpc", longest=0.2), ["a decision waited 200 ms"]),
        (row("grpc", most=200_000_000), ["120 MB more than grpcio's port"]),
        (row("grpc", after=100_000_000), ["30 MB are not given back"]),
        (Row("rapid-reset", "grpc", failed="the client beside failed"), ["the client beside failed"]),
    ],
)
def test_each_promise_that_our_port_breaks_is_named(ours: Row, broken: list[str]) -> None:
    found = [line for line in judge([ours, row("grpcio", longest=0.15)]) if "p99" not in line]
    assert len(found) == len(broken)
    assert all(wanted in line for wanted, line in zip(broken, found, strict=True))


def test_a_tail_of_more_than_twice_that_of_grpcio_is_named() -> None:
    ours = row("grpc")
    ours.during = [0.001] * 50 + [0.05] * 50
    assert any("p99" in line for line in judge([ours, row("grpcio")]))


def test_each_cell_of_the_table_names_drivers_tests_or_a_reason_and_each_driver_has_a_cell() -> None:
    page = (Path(__file__).parent / "README.md").read_text()
    lines = page[: page.index("Other attacks")].splitlines()
    header, *rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")]
    assert {len(row) for row in rows} == {len(header)}
    named = {name for row in rows for cell in row[1:] for name in re.findall(r"`([^`]+)`", cell)}
    tests = {name for name in named if name.endswith(".py")}
    assert tests <= {file.name for file in Path(__file__).parents[1].rglob("test_*.py")}
    options = {name for name in named if name.startswith("--")}
    assert named - tests - options == {*ATTACKS, *DOORS} - {"nothing"}


def test_every_test_that_the_page_names_is_there() -> None:
    page = (Path(__file__).parent / "README.md").read_text()
    named = set(re.findall(r"`([\w/]*test_\w+\.py)`", page))
    tests = {str(file) for file in Path(__file__).parents[1].rglob("test_*.py")}
    assert [name for name in named if not any(file.endswith(f"/{name}") for file in tests)] == []

"""The manual pages that the wheel installs."""

import tomllib

from policybridge_client.cli import COMMANDS
from policybridge_docs.manual import MAN, pages
from tests.docs.pages import ROOT


def test_each_command_has_a_page_and_the_pages_are_those_of_its_options() -> None:
    made = pages()
    names = [f"policybridge-{name.replace(' ', '-')}.1" for name in COMMANDS.names()]
    assert sorted(made) == sorted(["policybridge.1", *names])
    assert {file.name: file.read_text(encoding="utf-8") for file in MAN.glob("*")} == made, (
        "python -m policybridge_docs.manual writes them anew"
    )


def test_the_wheel_puts_the_pages_where_man_looks() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["tool"]["hatch"]["build"]["targets"]["wheel"]["shared-data"] == {"man": "share/man/man1"}

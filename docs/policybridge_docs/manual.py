"""``python -m policybridge_docs.manual``: write man/, the manual pages of the commands, which the wheel installs."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, cast

from argparse_manpage.manpage import Manpage

from policybridge_client.cli import COMMANDS, SUMMARIES, Command
from policybridge_client.command_line import Parser
from policybridge_core.version import version

MAN: Final = Path(__file__).parents[2] / "man"
_PROJECT: Final = "policybridge"


def pages() -> dict[str, str]:
    """Give each page's text by its file's name: one of the program, and one of each command."""
    made = {f"{_PROJECT}.1": _overview()}
    for name, parser in zip(COMMANDS.names(), _parsers(), strict=True):
        made[f"{parser.prog.replace(' ', '-')}.1"] = _page(parser, SUMMARIES[name])
    return made


def _parsers() -> Iterator[Parser]:
    for name in COMMANDS.names():
        parser = Parser(prog=f"{_PROJECT} {name}", description=SUMMARIES[name])
        cast("Command", COMMANDS.load(name)).add_arguments(parser)
        yield parser


def _overview() -> str:
    parser = Parser(prog=_PROJECT, usage="policybridge COMMAND ARGUMENT…", add_help=False)
    parser.description = "Each command has a page, such as policybridge-serve(1), and explains itself with --help."
    commands = parser.add_argument_group("commands")
    for name in COMMANDS.names():
        commands.add_argument(name.replace(" ", "-"), metavar=name, nargs="?", help=SUMMARIES[name])
    return _page(parser, "policy server for compilers")


def _page(parser: Parser, summary: str) -> str:
    # Without a date: the same commands give the same page.
    told = {"project_name": "PolicyBridge", "manual_title": "PolicyBridge", "date": version(), "description": summary}
    text = str(Manpage(parser, _data=told))
    # Programs find a page by its name, which has no space.
    title = parser.prog.replace(" ", r"\-")
    head = f".TH {parser.prog.upper()} ", f".SH NAME\n{parser.prog} "
    return text.replace(head[0], f'.TH "{title.upper()}" ', 1).replace(head[1], f".SH NAME\n{title} ", 1)


def main() -> int:
    """Write the pages, and remove those of commands that are gone."""
    MAN.mkdir(exist_ok=True)
    made = pages()
    for file in MAN.glob("*.1"):
        if file.name not in made:
            file.unlink()
    for name, text in made.items():
        (MAN / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The page of the commands, from the parsers that read their arguments."""

import argparse
from collections.abc import Iterator
from typing import Final, cast

from policybridge_client.cli import COMMANDS, SUMMARIES, Command
from policybridge_docs.markdown import code, table

_HEAD: Final = """# Commands

Every command tells the same with `--help`. `policybridge --version` prints the version. The exit status is 0 where
all went well and 2 where the arguments are wrong or the command cannot be run; pages of the single commands tell what
else there is.
"""


def page() -> str:
    """Give the page.

    Raises:
        PreconditionError: a package of an extra is not installed, without which a command cannot be read.

    """
    return "\n".join([_HEAD, *(line for name in sorted(SUMMARIES) for line in _command(name))])


def _command(name: str) -> Iterator[str]:
    parser = argparse.ArgumentParser(prog=f"policybridge {name}", description=SUMMARIES[name])
    cast("Command", COMMANDS.load(name)).add_arguments(parser)
    yield from _described(parser, 2)


def _described(parser: argparse.ArgumentParser, level: int) -> Iterator[str]:
    """Give the lines of a command, and of the commands below it."""
    usage = parser.format_usage().removeprefix("usage: ").rstrip()
    yield from (f"{'#' * level} {parser.prog}", "", f"{_sentence(parser.description)}", "")
    yield from ("```text", usage, "```", "")
    shown = [action for action in parser._actions if action.help != argparse.SUPPRESS and not _is_below(action)]
    yield from table(("argument", "default", "meaning"), [_row(parser, action) for action in shown])
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helped = {each.dest: each.help for each in action._choices_actions}
            for name, below in action.choices.items():
                below.description = below.description or helped.get(name)
                yield from _described(below, level + 1)


def _is_below(action: argparse.Action) -> bool:
    return isinstance(action, argparse._SubParsersAction | argparse._HelpAction)


def _row(parser: argparse.ArgumentParser, action: argparse.Action) -> tuple[str, str, str]:
    return _names(action), _default(action), _helped(parser, action)


def _names(action: argparse.Action) -> str:
    if not action.option_strings:
        return code(str(action.metavar or action.dest))
    value = "" if action.nargs == 0 else " " + _value(action)
    return ", ".join(code(f"{option}{value}") for option in action.option_strings)


def _value(action: argparse.Action) -> str:
    if isinstance(action.metavar, str):
        return action.metavar
    if action.metavar:
        return " ".join(action.metavar)
    return f"{{{','.join(map(str, action.choices))}}}" if action.choices else action.dest.upper()


def _default(action: argparse.Action) -> str:
    if action.required:
        return "required"
    if action.default in (None, argparse.SUPPRESS, [], (), "", False):
        return ""
    return code(str(action.default))


def _helped(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    formatter = parser._get_formatter()
    return formatter._expand_help(action).replace("\n", " ") if action.help else ""


def _sentence(text: str | None) -> str:
    if not text:
        return ""
    return f"{text[0].upper()}{text[1:]}".rstrip(".") + "."

"""The parser of the command line: argparse, with a suggestion for each misspelt option."""

import argparse
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from policybridge_core.text import meant


class Parser(argparse.ArgumentParser):
    """Suggests the known option whose spelling is closest to an unknown one.

    argparse reports only the consequence: of ``--polcy NAME`` it says that ``--policy`` is required.
    """

    _words: Sequence[str] = ()

    def share_epilog(self) -> None:
        """End the help of each subcommand as the help of the command ends."""
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                for parser in action.choices.values():
                    parser.epilog = parser.epilog or self.epilog

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse, and keep the words for `error`."""
        self._words = list(args or ())
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """Print the error and exit with status 2."""
        super().error("; ".join(self._suggestions()) or message)

    def _suggestions(self) -> Iterator[str]:
        known = set(self._options())
        for word in self._own_words():
            option = word.partition("=")[0]
            suggested = "" if _is_known(option, known) else meant(option, known, len(known))
            if suggested:
                yield f"there is no option {option}: {suggested.rstrip()}"

    def _own_words(self) -> Iterator[str]:
        """Give the words that look like options, up to the compiler's command."""
        for word in self._words:
            if word == "--":
                return
            if word.startswith("--"):
                yield word

    def _options(self) -> Iterator[str]:
        """Give the names of all options, of subcommands too."""
        yield from (name for name in self._option_string_actions if name.startswith("--"))
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                for parser in action.choices.values():
                    yield from (name for name in parser._option_string_actions if name.startswith("--"))


def _is_known(option: str, known: set[str]) -> bool:
    # argparse accepts any unambiguous beginning of a name.
    return any(name.startswith(option) for name in known)

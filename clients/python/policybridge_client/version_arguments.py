"""A version on the command line: ``inliner@2`` or ``inliner 2``."""

import argparse
from collections.abc import Sequence
from typing import Any

from policybridge_client.command_line import Parser
from policybridge_core.errors import InvalidError
from policybridge_serdes import PolicyReference


class InterleavedParser(Parser):
    """A parser of a subcommand that takes options between arguments, even if some arguments are missing.

    argparse's own parser reads ``retire inliner --server ADDR 2`` as a command without the version.
    """

    _parses = False

    def parse_known_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """Parse the options first, then the arguments."""
        if self._parses:
            return super().parse_known_args(args, namespace)
        self._parses = True
        # argparse reads a % in its own usage as the beginning of a format.
        self.usage = self.format_usage().removeprefix("usage: ").replace("%", "%%")
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._parses, self.usage = False, None


def add_version(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments ``POLICY[@VERSION] [VERSION]``."""
    parser.add_argument("policy", metavar="POLICY[@VERSION]", help="such as inliner@2, or inliner 2")
    parser.add_argument("version", nargs="?", type=int, metavar="VERSION", help=argparse.SUPPRESS)


def reference(arguments: argparse.Namespace) -> PolicyReference:
    """Give the policy and its version, if one is given.

    Raises:
        InvalidError: two versions are given.

    """
    version = PolicyReference.parse(arguments.policy)
    if arguments.version is None:
        return version
    if version.version is not None or version.alias is not None:
        raise InvalidError(f"give {arguments.policy} or a version behind it, {arguments.version}, and not both")
    return PolicyReference(version.name, version=arguments.version)


def numbered(arguments: argparse.Namespace) -> PolicyReference:
    """Give the policy and the number of its version.

    Raises:
        InvalidError: no number is given, or two.

    """
    version = reference(arguments)
    if version.version is None:
        raise InvalidError(f"{version.name}: the number of the version is missing: {version.name}@NUMBER")
    return version

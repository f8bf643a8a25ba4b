"""``policybridge sessions``: list, show and export the sessions of a ledger."""

import argparse
import re
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from time import time
from typing import Final, cast

import msgspec

from policybridge_core.errors import PolicyBridgeError
from policybridge_server.ledger.contract import LEDGERS
from policybridge_server.ledger.export import FORMATS
from policybridge_server.ledger.query import Query, SessionRecord
from policybridge_server.ledger.reader import LedgerReader

_USAGE: Final = 2
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_ID_WIDTH: Final = 12

_Export = Callable[[LedgerReader, Query, Path, str | None], int]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.description = "Sessions of a ledger. A server may be writing it at the same time."
    commands = parser.add_subparsers(dest="what", required=True, metavar="list|show|export")
    listing = commands.add_parser("list", help="one line per session, the oldest first")
    _add_query(listing)
    listing.add_argument("--json", action="store_true", help="one JSON object per line")
    showing = commands.add_parser("show", help="one session and its decisions")
    showing.add_argument("session", help="its id, or how it begins")
    _add_ledger(showing)
    showing.add_argument("--json", action="store_true", help="as one JSON object")
    exporting = commands.add_parser("export", help="write decisions to a file")
    _add_query(exporting)
    exporting.add_argument("--to", required=True, type=Path, metavar="FILE")
    exporting.add_argument(
        "--format",
        choices=FORMATS,
        default="log",
        metavar="FORMAT",
        help="how to write them: %(choices)s (default: log, LLVM's training log)",
    )
    exporting.add_argument("--score", metavar="NAME", help="the outcome that is the log's reward")


def _add_ledger(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--ledger", required=True, type=Path, metavar="FILE")
    parser.add_argument(
        "--ledger-store",
        choices=LEDGERS,
        default="sqlite",
        metavar="NAME",
        help="the kind of ledger: %(choices)s (default: sqlite)",
    )


def _add_query(parser: argparse.ArgumentParser) -> None:
    _add_ledger(parser)
    parser.add_argument("--policy", metavar="NAME")
    parser.add_argument("--version", type=_versions, metavar="N[-M]", help="one version, or the first and the last")
    parser.add_argument("--since", type=_when, metavar="WHEN", help="2026-01-31T12:00, or 90s, 5m, 2h, 7d ago")
    parser.add_argument("--until", type=_when, metavar="WHEN", help="before then")
    parser.add_argument("--label", type=_pair, action="append", default=[], metavar="NAME=VALUE", help="repeatable")
    parser.add_argument("--status", metavar="WORD", help="of the outcome")


def run(arguments: argparse.Namespace) -> int:
    """Run the command; the exit status is 2 if the ledger cannot be read or has no such session, else 0."""
    try:
        with LedgerReader(arguments.ledger, arguments.ledger_store) as reader:
            {"list": _list, "show": _show, "export": _export}[arguments.what](reader, arguments)
    except BrokenPipeError:
        # The reader of our output has closed it, as `head` does.
        sys.stderr.close()
    except (PolicyBridgeError, OSError) as error:
        sys.stderr.write(f"policybridge sessions: {error}\n")
        return _USAGE
    return 0


def _list(reader: LedgerReader, arguments: argparse.Namespace) -> None:
    for session in reader.sessions(_query(arguments)):
        print(_json(session.to_json()) if arguments.json else _line(session))


def _line(session: SessionRecord) -> str:
    opened = datetime.fromtimestamp(session.opened, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    policy = f"{session.policy.name}@{session.policy.version}"
    outcome = session.outcome
    status = (outcome.status or "reported") if outcome else state(session)
    labels = " ".join(f"{name}={value:.40}" for name, value in session.labels.items())
    return f"{session.id[:_ID_WIDTH]}  {opened}  {policy:20} {session.decisions:8}  {status:12} {labels}".rstrip()


def state(session: SessionRecord) -> str:
    """Give the state of a session in a word."""
    return "interrupted" if session.interrupted else "open" if session.closed is None else "closed"


def _show(reader: LedgerReader, arguments: argparse.Namespace) -> None:
    session = reader.session(arguments.session)
    contexts: dict[str, int] = {}
    advices: dict[str, int] = {}
    for segment in reader.segments(session):
        context = str(segment.contexts[0])
        contexts[context] = contexts.get(context, 0) + len(segment)
        for advice in segment.advices.tolist():
            advices[str(advice[0])] = advices.get(str(advice[0]), 0) + 1
    description = {**session.to_json(), "state": state(session), "contexts": contexts, "advices": advices}
    if arguments.json:
        print(_json(description))
        return
    for name, value in description.items():
        print(f"{name:12} {value if isinstance(value, str | int | float) else _json(value)}")


def _export(reader: LedgerReader, arguments: argparse.Namespace) -> None:
    export = cast("_Export", FORMATS.load(arguments.format))
    # Write to another name first: an error, such as an outcome that is missing, must not leave half a file.
    part = arguments.to.with_name(f"{arguments.to.name}.part")
    try:
        count = export(reader, _query(arguments), part, arguments.score)
        part.replace(arguments.to)
    finally:
        part.unlink(missing_ok=True)
    print(f"{count} decisions written to {arguments.to}")


def _query(arguments: argparse.Namespace) -> Query:
    return Query(
        policy=arguments.policy,
        versions=arguments.version,
        since=arguments.since,
        until=arguments.until,
        labels=dict(arguments.label),
        status=arguments.status,
    )


def _versions(text: str) -> tuple[int, int]:
    first, dash, last = text.partition("-")
    if not (first.isdecimal() and (last.isdecimal() or not dash)):
        raise argparse.ArgumentTypeError(f"{text!r} is neither N nor N-M")
    return int(first), int(last or first)


def _when(text: str) -> float:
    ago = re.fullmatch(r"(\d+)([smhd])", text)
    if ago:
        return time() - int(ago[1]) * _UNITS[ago[2]]
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is neither a time nor 90s, 5m, 2h or 7d") from None


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()

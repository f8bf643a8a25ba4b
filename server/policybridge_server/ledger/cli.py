"""``policybridge sessions``: list, show and export the sessions of a ledger."""

import argparse
import itertools
import re
import shutil
import sys
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from time import time
from typing import Final, cast

from policybridge_core.errors import InvalidError, PolicyBridgeError
from policybridge_core.terminal import as_json, complain, leave_reader, say
from policybridge_core.text import printable
from policybridge_serdes import PolicyReference, PolicyVersion
from policybridge_server.ledger.contract import LEDGERS, Bounds, load_ledger
from policybridge_server.ledger.export import FORMATS, PART, Score
from policybridge_server.ledger.importing import Origin, import_log
from policybridge_server.ledger.listing import check_filters, table
from policybridge_server.ledger.place import check_shown, expand, parse_place
from policybridge_server.ledger.query import Query
from policybridge_server.ledger.reader import LedgerReader

_USAGE: Final = 2
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}

_Export = Callable[[LedgerReader, Query, Path, Score | None], int]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.epilog = "Exit status: 0; 2 if the ledger cannot be read, or lacks the session."
    parser.description = "Sessions of a ledger. A server may be writing it at the same time."
    commands = parser.add_subparsers(dest="what", required=True, metavar="list|show|export|import")
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
    exporting.add_argument("--kind", metavar="ADVICE", help="decisions with this name of the advice alone")
    exporting.add_argument("--score", metavar="NAME", help="the outcome that is the reward")
    exporting.add_argument(
        "--score-default",
        type=float,
        metavar="NUMBER",
        help="the reward in sessions that lack the outcome (default: such a session is an error)",
    )
    _add_import(commands.add_parser("import", help="read training logs, such as LLVM's in development mode"))


def _add_import(parser: argparse.ArgumentParser) -> None:
    _add_ledger(parser)
    parser.add_argument("logs", nargs="+", type=Path, metavar="LOG", help="a file; each of its contexts is a session")
    parser.add_argument("--policy", default="imported", metavar="NAME", help="the sessions' policy (default: imported)")
    parser.add_argument("--version", type=int, default=1, metavar="N", help="the policy's version (default: 1)")
    parser.add_argument("--label", type=_pair, action="append", default=[], metavar="NAME=VALUE", help="repeatable")
    parser.add_argument(
        "--reward",
        choices=["sum", "last"],
        default="sum",
        help="a session's outcome: the sum of its rewards (default), or the last one, if all are the same",
    )


def _add_ledger(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--ledger",
        required=True,
        type=_shown,
        action="append",
        metavar="FILE|URL",
        help="a file, several by a pattern ('runs-*.db'), or a database (postgresql://USER@HOST/DATABASE); repeatable",
    )
    parser.add_argument(
        "--ledger-store",
        choices=LEDGERS,
        metavar="NAME",
        help="the kind of ledger: %(choices)s (default: sqlite for a file, postgresql for its URL)",
    )


def _add_query(parser: argparse.ArgumentParser) -> None:
    _add_ledger(parser)
    parser.add_argument("--policy", type=PolicyReference.parse, metavar="NAME[@VERSION]")
    parser.add_argument("--version", type=_versions, metavar="N[-M]", help="one version, or the first and the last")
    parser.add_argument("--since", type=_when, metavar="WHEN", help="2026-01-31T12:00, or 90s, 5m, 2h, 7d ago")
    parser.add_argument("--until", type=_when, metavar="WHEN", help="before then")
    parser.add_argument("--label", type=_pair, action="append", default=[], metavar="NAME=VALUE", help="repeatable")
    parser.add_argument("--status", metavar="WORD", help="of the outcome; without one: open, closed, interrupted")


def run(arguments: argparse.Namespace) -> int:
    """Run the command; the exit status is 2 if the ledger cannot be read or has no such session, else 0."""
    try:
        if arguments.what == "import":
            _import(arguments)
            return 0
        with LedgerReader(expand(arguments.ledger), arguments.ledger_store) as reader:
            {"list": _list, "show": _show, "export": _export}[arguments.what](reader, arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        leave_reader()
    except (PolicyBridgeError, OSError) as error:
        complain(f"policybridge sessions: {error}")
        return _USAGE
    return 0


def _list(reader: LedgerReader, arguments: argparse.Namespace) -> None:
    query = _query(arguments)
    sessions = reader.sessions(query)
    first = next(sessions, None)
    if first is None:
        check_filters(reader, query)
    listed = itertools.chain(() if first is None else (first,), sessions)
    # In a pipe lines may have any length.
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for line in (_json(each.to_json()) for each in listed) if arguments.json else table(listed, width):
        say(line)


def _show(reader: LedgerReader, arguments: argparse.Namespace) -> None:
    session = reader.session(arguments.session)
    contexts: dict[str, int] = {}
    advices: dict[str, dict[str, int]] = {}
    for segment in reader.segments(session):
        context = str(segment.contexts[0])
        contexts[context] = contexts.get(context, 0) + len(segment)
        of_kind = advices.setdefault(segment.signature.advice.name, {})
        for advice in segment.advices.tolist():
            of_kind[str(advice[0])] = of_kind.get(str(advice[0]), 0) + 1
    counted: Mapping[str, object] = advices if len(advices) > 1 else next(iter(advices.values()), {})
    description = {**session.to_json(), "state": session.state, "contexts": contexts, "advices": counted}
    outcomes = reader.context_outcomes(session)
    description["context_outcomes"] = outcomes if arguments.json else len(outcomes)
    if arguments.json:
        say(_json(description))
        return
    for name, value in description.items():
        say(f"{name:12} {printable(str(value) if isinstance(value, str | int | float) else _json(value))}")


def _export(reader: LedgerReader, arguments: argparse.Namespace) -> None:
    export = cast("_Export", FORMATS.load(arguments.format))
    score = _score(arguments)
    # Write to another name first: an error, such as an outcome that is missing, must not leave half a file.
    part = arguments.to.with_name(f"{arguments.to.name}{PART}")
    try:
        count = export(reader, _query(arguments), part, score)
        part.replace(arguments.to)
    finally:
        _remove(part)
    say(f"{count} decisions written to {arguments.to}")


def _score(arguments: argparse.Namespace) -> Score | None:
    if arguments.score is None and arguments.score_default is not None:
        raise InvalidError("--score-default is for the outcome that --score names")
    return None if arguments.score is None else Score(arguments.score, arguments.score_default)


def _remove(part: Path) -> None:
    if part.is_dir() and not part.is_symlink():
        shutil.rmtree(part)
    else:
        part.unlink(missing_ok=True)


def _import(arguments: argparse.Namespace) -> None:
    policy = PolicyVersion(arguments.policy, arguments.version, "")
    origin = Origin(policy, dict(arguments.label), arguments.reward)
    if len(arguments.ledger) != 1:
        raise InvalidError("give one --ledger: logs are read into one ledger")
    place = parse_place(arguments.ledger[0])
    store = load_ledger(place, arguments.ledger_store).open_store(place, Bounds())
    try:
        for log in arguments.logs:
            sessions, decisions = import_log(store, log, origin)
            say(f"{sessions} sessions with {decisions} decisions read from {log}")
    finally:
        store.close()


def _query(arguments: argparse.Namespace) -> Query:
    policy: PolicyReference | None = arguments.policy
    if policy is not None and policy.alias is not None:
        raise InvalidError(f"--policy {policy}: the ledger knows versions by their numbers, as in {policy.name}@2")
    number = None if policy is None else policy.version
    return Query(
        policy=None if policy is None else policy.name,
        versions=arguments.version or (None if number is None else (number, number)),
        since=arguments.since,
        until=arguments.until,
        labels=dict(arguments.label),
        status=arguments.status,
        kind=getattr(arguments, "kind", None),
    )


def _shown(text: str) -> str:
    try:
        return check_shown(text)
    except InvalidError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


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
    return as_json(value)

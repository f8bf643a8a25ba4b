"""``policybridge replay``: repeat a compilation from the ledger, without a server, and compare it with the record."""

import argparse
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Protocol, cast

import msgspec

from policybridge_client.llvm.plugin_host import CLIENT
from policybridge_client.llvm.record import LABEL, OBJECT, Compilation, object_digest
from policybridge_client.llvm.replay import RecordedCompilation, RecordedDecision, Replayed, replay
from policybridge_client.llvm.surroundings import Surroundings
from policybridge_client.llvm.tasks import INLINE
from policybridge_core.errors import PolicyBridgeError, PreconditionError
from policybridge_core.plugins import load_part
from policybridge_core.terminal import as_json, complain, say
from policybridge_serdes import Signature

_DIFFERENT: Final = 1
_USAGE: Final = 2

_READER: Final = "policybridge_server.ledger.reader:LedgerReader [server]"
_CHECK: Final = "policybridge_server.ledger.place:check_shown [server]"
"""The reader of a ledger, and the check of its address for passwords: parts of the server, loaded when needed."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.description = (
        "Compiles again with the decisions of a recorded session, without a server, and compares LLVM's observations "
        "and the object with the record. The object is not kept."
    )
    parser.epilog = "Exit status: 0 if they are identical; 1 if not; 2 if a replay is impossible."
    parser.usage = "policybridge replay --ledger FILE [options] SESSION [-- COMPILER ARGUMENT…]"
    parser.add_argument("--ledger", required=True, metavar="FILE|URL", help="as for policybridge sessions")
    parser.add_argument("--ledger-store", metavar="NAME", help="the kind of ledger, as for policybridge serve")
    parser.add_argument("--cwd", type=Path, metavar="DIR", help="where to compile (default: where it was recorded)")
    parser.add_argument(
        "--object", type=Path, metavar="FILE", help="compare with this object (default: the recorded digest)"
    )
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")
    parser.add_argument("session", help="the session's id, or its first characters")
    parser.add_argument(
        "command", nargs=argparse.REMAINDER, metavar="-- COMPILER ARGUMENT…", help="default: the recorded command"
    )


def run(arguments: argparse.Namespace) -> int:
    """Replay the compilation; return the exit status."""
    command = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    try:
        cast("Callable[[str], str]", load_part(_CHECK, "the ledger's reader"))(arguments.ledger)
        recorded = load_recorded(arguments.ledger, arguments.session, command, kind=arguments.ledger_store)
        if arguments.object is not None:
            recorded = replace(recorded, object=_digest(arguments.object))
        result = replay(recorded, Surroundings(cwd=arguments.cwd))
    except (PolicyBridgeError, OSError) as error:
        complain(f"policybridge replay: {error}")
        return _USAGE
    say(_as_json(result) if arguments.json else _in_words(result))
    return 0 if result.identical else _DIFFERENT


def _digest(file: Path) -> float:
    digest = object_digest(file)
    if digest is None:
        raise PreconditionError(f"there is no object {file} to compare with")
    return digest


def _as_json(result: Replayed) -> str:
    return as_json({"identical": result.identical, **vars(result)})


def _in_words(result: Replayed) -> str:
    if result.identical:
        also = "and the object" if result.object else "(the object's digest is not recorded; give --object)"
        return f"identical: {result.decisions} observations {also}"
    where = "" if result.step is None else f" at step {result.step}"
    return f"different{where}: {result.difference}"


class _Reader(AbstractContextManager["_Reader"], Protocol):
    def __init__(self, places: Path | str, kind: str | None) -> None: ...

    def session(self, session_id: str) -> Any: ...

    def trajectory(self, session: Any) -> Any: ...


def load_recorded(
    ledger: Path | str, session_id: str, command: Sequence[str] = (), *, kind: str | None = None
) -> RecordedCompilation:
    """Read a compilation from a ledger.

    Args:
        ledger: the ledger's file, or its database's URL.
        session_id: the session's id, or its first characters.
        command: a command that replaces the recorded one.
        kind: the name of the kind of ledger; ``None``: told from its address.

    Raises:
        PreconditionError: the record lacks decisions, or the compiler's command.
        PolicyBridgeError: the ledger cannot be read, or has no such session.

    """
    with cast("type[_Reader]", load_part(_READER, "the ledger's reader"))(ledger, kind) as reader:
        session = reader.session(session_id)
        compilation = _compilation(session, command)
        _check_whole(session)
        decisions = list(_decisions(reader.trajectory(session)))
    values = session.outcome.values if session.outcome else {}
    return RecordedCompilation(compilation, decisions, values.get(OBJECT), _is_plugins(session))


def _compilation(session: Any, command: Sequence[str]) -> Compilation:
    label = session.labels.get(LABEL)
    if label is None and _is_plugins(session):
        if not command:
            raise PreconditionError(
                f"session {session.id} is the plugin's, which does not record the compiler's command: give it after --"
            )
        return Compilation(list(command), str(Path.cwd()), INLINE.name, "")
    if label is None:
        raise PreconditionError(f"session {session.id} has no label {LABEL!r}, which has the compiler's command")
    recorded = Compilation.from_label(label)
    return msgspec.structs.replace(recorded, command=list(command)) if command else recorded


def _is_plugins(session: Any) -> bool:
    return str(session.labels.get("client", "")).startswith(CLIENT)


def _check_whole(session: Any) -> None:
    values = session.outcome.values if session.outcome else {}
    why = None
    if session.lost:
        why = f"{session.lost} decisions found no room in the ledger"
    elif session.outcome is None:
        why = "its end was not reported, so decisions may be missing"
    elif values.get("sessions", 1) > 1 or values.get("headers", 1) > 1:
        why = "the command compiles several sources, and each would ask from the start"
    elif session.outcome.status in ("fallback", "error") or values.get("defaults", 0):
        why = "the policy did not make all decisions"
    if why is not None:
        raise PreconditionError(f"session {session.id} cannot be replayed: {why}")


def _decisions(trajectory: Any) -> Iterator[RecordedDecision]:
    for batch in trajectory.batches:
        signature: Signature = batch.signature
        observations, advices = batch.observations.tobytes(), batch.advices.tobytes()
        wide, narrow = signature.features.size, signature.advice_layout.size
        for row, context in enumerate(batch.contexts):
            observation = observations[row * wide : (row + 1) * wide]
            yield RecordedDecision(signature, context, observation, advices[row * narrow : (row + 1) * narrow])

"""The connection over the server's Unix socket (proto/SOCKET.md): LLVM's interactive protocol behind one JSON line."""

import struct
from collections.abc import Callable
from dataclasses import asdict
from math import inf
from pathlib import Path
from typing import Annotated, Final, TypeVar

import msgspec

from policybridge_client.contract import FormReference
from policybridge_client.socket_wire import Wire
from policybridge_client.spool import PATIENCE
from policybridge_core.closing import Closing
from policybridge_core.errors import (
    InvalidError,
    OutOfScopeError,
    PolicyBridgeError,
    PreconditionError,
    TooLargeError,
    error_from_status,
)
from policybridge_serdes import Outcome, PolicyReference, PolicyVersion, SessionOptions, Signature, Values
from policybridge_serdes.bitstream import BitstreamSerDes
from policybridge_serdes.interactive import (
    context_line,
    decided_lines,
    end_line,
    form_line,
    header_line,
    observation_lines,
    outcome_fields,
    outcome_line,
)
from policybridge_serdes.limits import DEFAULT_LIMIT

_PROTOCOL: Final = 1
_SIZE: Final = struct.Struct("<Q")
_CHANCE: Final = struct.Struct("<f")

_A = TypeVar("_A")
_T = TypeVar("_T")


class _Failure(msgspec.Struct):
    status: int
    message: str


class _FailureLine(msgspec.Struct):
    error: _Failure


_Number = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]


class _FormJson(msgspec.Struct):
    digest: str
    bytes: _Number


class _OpenedJson(msgspec.Struct):
    session: str = ""
    policy: str = ""
    version: _Number = 0
    digest: str = ""
    decides: tuple[str, ...] = ()
    forms: dict[str, _FormJson] = {}
    outside: dict[str, str] = {}
    error: _Failure | None = None


class _RecordedJson(msgspec.Struct):
    recorded: bool = False
    error: _Failure | None = None


class SocketConnection(Closing):
    """A server on the same machine. Each session has its own socket connection, so sessions share nothing.

    Args:
        target: the socket's path.
        timeout: limit of each exchange with the server, in seconds: connecting and opening a session, one decision.
            The kernel applies it (SO_RCVTIMEO), without a system call per decision, to an answer that comes in one
            piece.

    """

    def __init__(self, target: str, timeout: float) -> None:
        if not timeout > 0:
            raise InvalidError(f"a timeout is more than 0 seconds, not {timeout}")
        self._path = target
        self._timeout = timeout
        self._sessions: set[SocketSession] = set()

    def open(self, policy: PolicyReference, signature: Signature, options: SessionOptions) -> "SocketSession":
        """Open a session. The server checks the signature against the policy at the first observation.

        Raises:
            OutOfScopeError: its kind of decisions is not for a compilation with these labels.
            PolicyBridgeError: see `Connection.open`.

        """
        wire = self._wire()
        try:
            session = SocketSession(wire, policy, signature, options, self._sessions.discard)
        except BaseException:
            wire.close()
            raise
        self._sessions.add(session)
        return session

    def check(self) -> None:
        """Check that the server can be reached."""
        self._wire().close()

    def report_outcome(self, session_id: str, outcome: Outcome) -> None:
        """Report the outcome of any session, on a new connection."""
        wire = self._wire()
        try:
            wire.send(_report(session_id, outcome))
            _check_recorded(wire.receive_line())
        finally:
            wire.close()

    def close(self) -> None:
        """Close the connection; its sessions end."""
        for session in list(self._sessions):
            session.close()

    def _wire(self) -> Wire:
        return Wire(self._path, self._timeout)


class SocketSession(Closing):
    """One session; see `ClientSession`."""

    def __init__(
        self,
        wire: Wire,
        policy: PolicyReference,
        signature: Signature,
        options: SessionOptions,
        ended: Callable[["SocketSession"], None],
    ) -> None:
        serdes = BitstreamSerDes()
        self._encode = serdes.codec(signature.features).encode
        self._decode = serdes.codec(signature.advice_layout).decode
        self._features_fixed = signature.features.fixed
        self._advice_fixed = signature.advice_layout.fixed
        self._explores = options.exploration is not None
        self._size = signature.advice_layout.size if self._advice_fixed else 0
        self._reply = bytearray(1 + self._size + (_CHANCE.size if self._explores and self._advice_fixed else 0))
        self.log_probability: float | None = None
        self._step = 0
        self._header = header_line(signature)
        # Lines that are sent together with the next observation, to save system calls.
        self._before = self._header + context_line(options.context)
        self._wire = wire
        self._ended = ended
        self._over: str | None = None
        opened = self._open(policy, options)
        if signature.advice.name in opened.outside:
            raise OutOfScopeError(opened.outside[signature.advice.name])
        self.server, self.asked, self.options = f"socket:{Path(wire.path).absolute()}", policy, options
        self.id = opened.session
        self.policy = PolicyVersion(opened.policy, opened.version, opened.digest)
        self.decides = opened.decides
        self.forms = {kind: FormReference(each.digest, each.bytes) for kind, each in opened.forms.items()}

    def evaluate(self, observation: Values) -> Values:
        """Ask for one decision."""
        return self._ended_by_failure(self._ask, observation)

    def report(self, outcome: Outcome) -> None:
        """Report the outcome."""
        self._ended_by_failure(self._tell, outcome_line(outcome))

    def form(self, form: FormReference) -> bytes:
        """Ask for a form."""
        form.check()
        return self._ended_by_failure(self._ask_form, form)

    def decided(self, count: int, nanoseconds: int, payload: bytes) -> None:
        """Report decisions of this client."""
        lines = decided_lines(count, nanoseconds, payload, chances=self._explores)
        self._ended_by_failure(self._wire.send, self._before + lines)
        self._before = self._header = b""

    def conclude(self, outcome: Outcome) -> None:
        """Report the outcome, and end the session."""
        self._conclude(outcome_line(outcome) + end_line(), 2, inf)

    def finish(self) -> None:
        """End the session, and wait until its record is kept."""
        self._conclude(end_line(), 1, PATIENCE)

    def _conclude(self, lines: bytes, answers: int, seconds: float) -> None:
        if self._over is not None:
            raise PreconditionError(f"the session is over: {self._over}")
        self._wire.begin_last_exchange(seconds)
        try:
            self._tell(lines, answers)
        finally:
            self._end("it was closed")

    def send_record(self, record: bytes) -> None:
        """Send the record of an earlier session, on a new connection."""
        wire = Wire(self._wire.path, PATIENCE)
        try:
            wire.send(record)
            _check_recorded(wire.receive_line())
        finally:
            wire.close()

    def _ended_by_failure(self, ask: Callable[[_A], _T], message: _A) -> _T:
        if self._over is not None:
            raise PreconditionError(f"the session is over: {self._over}")
        self._wire.begin_exchange()
        try:
            return ask(message)
        except BaseException as error:
            # Also after a signal: the late reply would look like the reply to the next observation.
            self._end(str(error) or repr(error))
            raise

    def context(self, name: str) -> None:
        """Name the function or module of the next observations; the name goes out with the next observation."""
        self._before = self._header + context_line(name)

    def close(self) -> None:
        """End the session."""
        if self._over is None:
            self._end("it was closed")

    def _end(self, why: str) -> None:
        self._over = why
        self._wire.close()
        self._ended(self)

    def _open(self, policy: PolicyReference, options: SessionOptions) -> _OpenedJson:
        self._wire.send(_hello(policy, options))
        line = self._wire.receive_line()
        opened = _parse(line, _OpenedJson)
        if opened.error is not None:
            raise error_from_status(opened.error.status, opened.error.message)
        if not (opened.session and opened.policy):
            raise _foreign(line)
        return opened

    def _ask(self, observation: Values) -> Values:
        lines = observation_lines(self._step, self._encode(observation), fixed=self._features_fixed)
        if self._before:
            lines = self._before + lines
            self._before = self._header = b""
        self._step += 1
        self._wire.send(lines)
        got = self._wire.receive_reply(self._reply)
        if got != len(self._reply) or self._reply[0]:
            raise self._failure(bytes(self._reply[:got]))
        advice = bytes(self._reply[1 : 1 + self._size]) if self._advice_fixed else self._varying()
        if self._explores:
            self.log_probability = self._chance()
        return self._decode(advice)

    def _ask_form(self, form: FormReference) -> bytes:
        self._wire.send(form_line(form.digest))
        status = bytearray(1)
        if not self._wire.receive_into(status) or status[0]:
            raise self._failure(bytes(status))
        return self._wire.receive(form.size)

    def _tell(self, lines: bytes, answers: int = 1) -> None:
        self._wire.send(self._before + lines)
        self._before = self._header = b""
        for _ in range(answers):
            status = bytearray(1)
            if not self._wire.receive_into(status) or status[0]:
                raise self._failure(bytes(status))
            _check_recorded(self._wire.receive_line())

    def _chance(self) -> float:
        told = self._reply[1 + self._size :] if self._advice_fixed else self._wire.receive(_CHANCE.size)
        (chance,) = _CHANCE.unpack(told)
        return float(chance)

    def _varying(self) -> bytes:
        (size,) = _SIZE.unpack(self._wire.receive(_SIZE.size))
        if size > DEFAULT_LIMIT:
            raise TooLargeError(f"the server announces an advice of {size} bytes; at most {DEFAULT_LIMIT} are taken")
        return self._wire.receive(size)

    def _failure(self, reply: bytes) -> PolicyBridgeError:
        if not reply or not reply[0]:
            return self._wire.gone()
        failure = _parse(self._wire.receive_line(reply[1:]), _FailureLine).error
        return error_from_status(failure.status, failure.message)


def _hello(policy: PolicyReference, options: SessionOptions) -> bytes:
    fields: dict[str, object] = {"policybridge": _PROTOCOL, "policy": policy.name}
    which = {"version": policy.version, "alias": policy.alias}
    fields |= {name: value for name, value in which.items() if value is not None}
    fields |= {"options": dict(options.options), "labels": dict(options.labels)}
    if options.context:
        fields["context"] = options.context
    if options.evaluates:
        fields["evaluate"] = "here"
    if options.exploration is not None:
        fields |= {"framing": "chance", "exploration": asdict(options.exploration)}
    return msgspec.json.encode(fields) + b"\n"


def _report(session_id: str, outcome: Outcome) -> bytes:
    told = outcome_fields(outcome)
    return msgspec.json.encode({"policybridge": _PROTOCOL, "report": session_id, "outcome": told}) + b"\n"


def _parse(line: bytes, kind: type[_T]) -> _T:
    try:
        return msgspec.json.decode(line, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _foreign(line) from error


def _check_recorded(line: bytes) -> None:
    answer = _parse(line, _RecordedJson)
    if answer.error is not None:
        raise error_from_status(answer.error.status, answer.error.message)
    if not answer.recorded:
        raise _foreign(line)


def _foreign(line: bytes) -> InvalidError:
    return InvalidError(f"the server's answer does not follow the protocol: {line[:60]!r}")

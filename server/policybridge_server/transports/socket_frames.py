"""The JSON lines of the socket's protocol, as the server reads and writes them; see proto/SOCKET.md."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal

import msgspec

from policybridge_core.errors import InvalidError, PolicyBridgeError
from policybridge_core.session import LONGEST_NAME, Resumption
from policybridge_core.text import without_paths
from policybridge_serdes import Exploration, PolicyReference, PolicyVersion, SessionOptions
from policybridge_serdes.interactive import OutcomeFields
from policybridge_server.engine.forms import Forms

RECORDED: Final = b'{"recorded":true}\n'
"""Answers an outcome when the ledger holds it, and the end of a session when it holds all of it."""


_Name = Annotated[str, msgspec.Meta(max_length=LONGEST_NAME)]


class Explore(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the session explores; see `Exploration`."""

    seed: int = 0
    temperature: float = 0.0
    epsilon: float = 0.0


class Hello(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The client's first line."""

    policybridge: Literal[1]
    policy: _Name
    version: Annotated[int, msgspec.Meta(ge=0)] | None = None
    alias: _Name | None = None
    framing: Literal["status", "chance", "raw"] = "status"
    options: dict[str, str] = {}
    labels: dict[str, str] = {}
    context: str = ""
    exploration: Explore | None = None
    evaluate: Literal["here", "there"] = "there"

    @property
    def reference(self) -> PolicyReference:
        """The policy that the client wants.

        Raises:
            InvalidError: both a version and an alias are given.

        """
        return PolicyReference(self.policy, self.version, self.alias)

    @property
    def session_options(self) -> SessionOptions:
        """The options of the session.

        Raises:
            InvalidError: a value of the exploration is out of its range, or the framing leaves no room for a form.

        """
        if self.evaluate == "here" and self.framing == "raw":
            raise InvalidError("a client that decides by itself needs the framing status or chance, not raw")
        exploration = _exploration(self.exploration)
        return SessionOptions(self.context, self.options, self.labels, exploration, self.evaluate == "here")


def _exploration(given: Explore | None) -> Exploration | None:
    return None if given is None else Exploration(given.seed, given.temperature, given.epsilon)


class Resume(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The first line of a record that a server did not acknowledge: the session as it was opened.

    Attributes:
        resume: the session's id.
        policy: the policy, version and digest that decided.
        alias: that the client asked for.

    """

    policybridge: Literal[1]
    resume: _Name
    policy: _Name
    version: Annotated[int, msgspec.Meta(ge=0)]
    digest: _Name
    alias: _Name = ""
    options: dict[str, str] = {}
    labels: dict[str, str] = {}
    context: str = ""
    exploration: Explore | None = None

    @property
    def reference(self) -> PolicyReference:
        """The version that decided."""
        return PolicyReference(self.policy, self.version)

    @property
    def session_options(self) -> SessionOptions:
        """The options of the session.

        Raises:
            InvalidError: a value of the exploration is out of its range.

        """
        resumption = Resumption(self.resume, self.digest, self.alias)
        exploration = _exploration(self.exploration)
        return SessionOptions(self.context, self.options, self.labels, exploration, evaluates=True, resumes=resumption)


class Report(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The one line of a connection without a session: the outcome of a session that another connection opened."""

    policybridge: Literal[1]
    report: _Name
    outcome: OutcomeFields


_HELLO: Final = msgspec.json.Decoder(Hello)

_NO_HELLO: Final = (b'"report"', b'"resume"', b"\\")
"""A line without any of these is no report and no record: JSON may write a name with backslashes."""


def parse_hello(line: bytes) -> Hello | Report | Resume:
    """Read the client's first line.

    Raises:
        InvalidError: the line is neither a hello, nor a report, nor that of a record; the message names the fault.

    """
    try:
        if not any(mark in line for mark in _NO_HELLO):
            return _HELLO.decode(line)
        # Decide first which of them it is: msgspec's errors for a union name the fields of none.
        fields = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
        if "report" in fields:
            return msgspec.json.decode(line, type=Report)
        if "resume" in fields:
            return msgspec.json.decode(line, type=Resume)
        return _HELLO.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidError(f"the hello line is malformed: {error}; see proto/SOCKET.md") from error


def opened_line(
    session_id: str,
    policy: PolicyVersion,
    decides: tuple[str, ...] = (),
    forms: Forms | None = None,
    outside: Mapping[str, str] = MappingProxyType({}),
) -> bytes:
    """Write the line that answers a hello.

    Args:
        session_id: the session's id.
        policy: the version that answers.
        decides: the kinds of decisions that the policy declares.
        forms: by which the client may decide.
        outside: the kinds whose scope does not have the session's labels → why.

    """
    opened: dict[str, Any] = {"session": session_id, "policy": policy.name, "version": policy.version}
    opened["digest"] = policy.digest
    if decides:
        opened["decides"] = decides
    if outside:
        opened["outside"] = outside
    if forms is not None:
        opened["forms"] = {
            kind: {"digest": each.digest, "bytes": len(each.data)} for kind, each in forms.by_kind.items()
        }
    return msgspec.json.encode(opened) + b"\n"


def error_line(error: PolicyBridgeError) -> bytes:
    """Write the line of an error that ends a session."""
    return msgspec.json.encode({"error": {"status": int(error.status), "message": without_paths(str(error))}}) + b"\n"

"""The contract of a connection to the policy server, and of a session."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from policybridge_core.errors import TooLargeError
from policybridge_forms.words import MOST_BYTES
from policybridge_serdes import Outcome, PolicyReference, PolicyVersion, SessionOptions, Signature, Values


class ClientSession(AbstractContextManager["ClientSession"], Protocol):
    """One compilation's session, bound to one policy version. It may be used from one thread at a time.

    A ``with`` block closes it at its end.
    """

    @property
    def id(self) -> str:
        """The server's id of this session."""
        ...

    @property
    def policy(self) -> PolicyVersion:
        """The version that answers every observation of this session."""
        ...

    @property
    def decides(self) -> Sequence[str]:
        """The kinds of decisions that the policy declares, each by the name of the advice; empty: it declares none."""
        ...

    @property
    def log_probability(self) -> float | None:
        """The log-probability of the last advice; ``None`` in a session that does not explore."""
        ...

    def evaluate(self, observation: Values) -> Values:
        """Send one record of the features; return one record of the advice.

        Raises:
            PolicyBridgeError: there is no advice. After any error the session is closed.

        """
        ...

    def context(self, name: str) -> None:
        """Tell the server that the next observations belong to the function (or module) ``name``."""
        ...

    def report(self, outcome: Outcome) -> None:
        """Report the outcome. When this returns, the ledger holds it and every decision of this session.

        A later report adds values to the outcome; a value of the same name replaces the earlier one.

        Raises:
            UnsupportedError: the server has no ledger.
            PolicyBridgeError: the ledger does not hold the outcome. After any error the session is closed.

        """
        ...

    def close(self) -> None:
        """End the session. A second call does nothing."""
        ...


@runtime_checkable
class ConcludingSession(Protocol):
    """A session whose channel carries its outcome and its end together."""

    def conclude(self, outcome: Outcome) -> None:
        """Report the outcome, and end the session, in one exchange.

        When this returns, the ledger holds the outcome, every decision of this session, and its end.

        Raises:
            UnsupportedError: the server has no ledger.
            PolicyBridgeError: the ledger may lack some of them. The session is closed in any case.

        """
        ...


def conclude(session: ClientSession, outcome: Outcome) -> None:
    """Report the outcome, and end the session: in one exchange if its channel can.

    Raises:
        PolicyBridgeError: as `ClientSession.report`. The session is closed in any case.

    """
    if isinstance(session, ConcludingSession):
        session.conclude(outcome)
        return
    try:
        session.report(outcome)
    finally:
        session.close()


@dataclass(frozen=True)
class FormReference:
    """A portable form that the server offers.

    Attributes:
        digest: ``sha256:`` and hexadecimal digits, over its bytes.
        size: of it, in bytes.

    """

    digest: str
    size: int

    @property
    def is_too_large(self) -> bool:
        """Whether it is larger than a form may be."""
        return self.size > MOST_BYTES

    def check(self) -> None:
        """Check that it is no larger than a form may be.

        Raises:
            TooLargeError: it is.

        """
        if self.is_too_large:
            raise TooLargeError(f"the server announces a form of {self.size} bytes; at most {MOST_BYTES} are taken")


@runtime_checkable
class FormSession(ClientSession, ConcludingSession, Protocol):
    """A session over a channel that carries forms (docs/forms.md), and the decisions that the client makes by them."""

    @property
    def server(self) -> str:
        """The address of the session's server."""
        ...

    @property
    def asked(self) -> PolicyReference:
        """The policy that the client asked for."""
        ...

    @property
    def options(self) -> SessionOptions:
        """The options with which the session was opened."""
        ...

    @property
    def forms(self) -> Mapping[str, FormReference]:
        """The forms that the client may decide by, by the kinds of decisions; that of an only model by the empty name.

        Empty unless the session was opened with `SessionOptions.evaluates`.
        """
        ...

    def form(self, form: FormReference) -> bytes:
        """Ask for the bytes of a form, once for each.

        Raises:
            PolicyBridgeError: they did not come. After any error the session is closed.

        """
        ...

    def decided(self, count: int, nanoseconds: int, payload: bytes) -> None:
        """Report decisions that this client made by a form.

        Args:
            count: how many there are, 1 to 1,024.
            nanoseconds: the time that they took together.
            payload: their packed observations, one after the other, then their packed advices, and in a session that
                explores the logarithms of their probabilities as floats.

        """
        ...

    def finish(self) -> None:
        """End the session. When this returns, the ledger holds its record, the end included, if there is a ledger.

        Raises:
            PolicyBridgeError: it does not. The session is closed.

        """
        ...

    def send_record(self, record: bytes) -> None:
        """Send the record of an earlier session, which the server has not acknowledged, and wait until it has.

        Raises:
            UnavailableError: the server takes it later.
            PolicyBridgeError: the server does not take it.

        """
        ...


class Connection(AbstractContextManager["Connection"], Protocol):
    """A connection to one server. Its timeout, in seconds, limits each wait for the server: opening, each decision.

    A ``with`` block closes it at its end; `Closing` makes a context manager of an implementation.
    """

    def open(
        self,
        policy: PolicyReference,
        signature: Signature,
        options: SessionOptions,
    ) -> ClientSession:
        """Open a session.

        Raises:
            PolicyBridgeError: the policy is unknown, the signature does not fit it, the server cannot be reached, or it
                does not answer in time.

        """
        ...

    def check(self) -> None:
        """Check that the server can be reached.

        Raises:
            UnavailableError: it cannot be reached.
            DeadlineError: it does not answer in time.

        """
        ...

    def report_outcome(self, session_id: str, outcome: Outcome) -> None:
        """Report the outcome of a session, from any process and also after its end; see `ClientSession.report`.

        Raises:
            NotFoundError: the ledger has no such session.
            UnsupportedError: the server has no ledger.
            PolicyBridgeError: the ledger does not hold the outcome.

        """
        ...

    def close(self) -> None:
        """Close the connection; its sessions end."""
        ...

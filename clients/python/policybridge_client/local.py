"""A session whose decisions are made in this process, by the form of the policy's version (docs/forms.md)."""

import struct
from collections.abc import Sequence
from time import perf_counter_ns
from typing import Any, Final, Literal, get_args

import numpy as np
import numpy.typing as npt

from policybridge_client.addresses import scheme_of, split_addresses
from policybridge_client.contract import ClientSession, FormReference, FormSession
from policybridge_client.form_cache import FormCache
from policybridge_client.record import Record
from policybridge_client.spool import Spool
from policybridge_core.closing import Closing
from policybridge_core.digest import content_digest
from policybridge_core.errors import (
    DeadlineError,
    InvalidError,
    PolicyBridgeError,
    PolicyFailedError,
    PreconditionError,
    UnavailableError,
)
from policybridge_forms import Drawing, Form
from policybridge_forms.evaluating import SAID, Status
from policybridge_serdes import ElementType, Exploration, Outcome, Signature, TensorSpec, Values
from policybridge_serdes.interactive import MOST_DECIDED, context_line, decided_lines, header_line, outcome_line

Evaluate = Literal["there", "auto", "here"]
"""Where decisions are made: by the server, by `takes_forms` here or there, or in this process."""

_PLACES: Final = get_args(Evaluate)
_CHANCE: Final = struct.Struct("<f")
_REPORT_AT: Final = 1 << 16
"""Bytes of decisions that are reported together."""


def takes_forms(evaluate: Evaluate, address: str, advice: TensorSpec) -> bool:
    """Whether a session that is to be evaluated so takes forms.

    With ``auto`` it does over gRPC: a socket answers in 30 µs, and Python takes 250 to decide by the bundled trees.
    Floats are asked for, because their last bits may differ.

    Args:
        evaluate: where decisions are made.
        address: of the server, or of several.
        advice: the advice's spec.

    Raises:
        InvalidError: ``evaluate`` is none of the three.

    """
    if evaluate not in _PLACES:
        raise InvalidError(f"evaluate is {evaluate!r}; decisions are made {', '.join(_PLACES)}")
    if evaluate != "auto":
        return evaluate == "here"
    schemes = {scheme_of(each)[0] for each in split_addresses(address)}
    return schemes <= {"grpc", "grpcs"} and advice.type not in {ElementType.FLOAT, ElementType.DOUBLE}


def decide_here(
    session: ClientSession,
    signature: Signature,
    exploration: Exploration | None = None,
    *,
    asks: bool = True,
    spool: Spool | None = None,
) -> ClientSession:
    """Make the decisions of a new session in this process, if its version has a form that fits; else give the session.

    The server gets the decisions in bulk. If it goes away, they go on, by the same version.

    Args:
        session: was opened with `SessionOptions.evaluates`.
        signature: likewise.
        exploration: likewise.
        asks: whether the server is asked where no form fits, or where the form fails to decide.
        spool: keeps the record on disk if the server goes away, and sends those from before; ``None``: the record is
            lost then.

    Raises:
        PreconditionError: no form fits, and the server is not asked. The session is closed.
        PolicyBridgeError: the form did not come. The session is closed.

    """
    form = _fitting(session, signature, asks=asks)
    if form is not None and isinstance(session, FormSession):
        return LocalSession(session, form, signature, exploration, spool, asks=asks)
    if asks:
        return session
    session.close()
    raise PreconditionError(
        f"{session.policy.name}@{session.policy.version} has no portable form that decides on {signature.advice}; "
        "let the server decide (evaluate auto or there)"
    )


def _fitting(session: ClientSession, signature: Signature, *, asks: bool) -> Form | None:
    if not (isinstance(session, FormSession) and signature.features.plain and signature.advice_layout.plain):
        return None
    reference = session.forms.get(signature.advice.name) or session.forms.get("")
    form = None if reference is None else _form(session, reference, asks=asks)
    return None if form is None or not _fits(form, signature) else form


def _form(session: FormSession, reference: FormReference, *, asks: bool) -> Form | None:
    """Give the form; ``None`` if this client cannot read it, or may ask instead of taking another one."""
    cache = FormCache()
    data = cache.find(reference.digest)
    try:
        if data is None:
            if asks and reference.is_too_large:
                return None
            data = session.form(reference)
            if (wrong := content_digest(data) != reference.digest) and asks:
                return None
            if wrong:
                raise InvalidError(f"the server sent another form than {reference.digest}")
            cache.keep(data)
    except BaseException:
        session.close()
        raise
    try:
        return Form.read(data)
    except PolicyBridgeError:
        return None


def _fits(form: Form, signature: Signature) -> bool:
    """Whether the client's signature fits; if it does not, the server says why."""
    given, advice = signature.features.by_name, form.content.advice
    features = all(
        each.fill is not None if each.spec.name not in given else _is_same(given[each.spec.name], each.spec)
        for each in form.content.features
    )
    return features and _is_same(signature.advice, advice)


def _is_same(left: TensorSpec, right: TensorSpec) -> bool:
    return left.type is right.type and _without_ones(left.shape) == _without_ones(right.shape)


def _without_ones(shape: Sequence[int]) -> tuple[int, ...]:
    """Drop the dimensions of 1 in front, as the server does."""
    first = next((place for place, size in enumerate(shape) if size != 1), len(shape))
    return tuple(shape[first:])


class LocalSession(Closing):
    """One session; see `ClientSession`. Made by `decide_here`.

    Attributes:
        id: of the session with the server.
        policy: the version that decides.
        decides: the kinds of decisions that the policy declares.
        log_probability: of the last advice; ``None``: the session does not explore.
        lost: why the server no longer gets the decisions; ``None``: it does.

    """

    def __init__(  # noqa: PLR0913 - as `decide_here`
        self,
        session: FormSession,
        form: Form,
        signature: Signature,
        exploration: Exploration | None = None,
        spool: Spool | None = None,
        *,
        asks: bool = False,
    ) -> None:
        self.log_probability: float | None = None
        self._drawing = None if exploration is None else Drawing(exploration)
        self._chances: list[bytes] = []
        self._session = session
        self._spool = spool
        self._asks = asks
        self._kept = Record(session.id, session.policy, session.asked, session.options)
        self._kept.note(header_line(signature))
        if spool is None:
            self._kept.give_up()
        self._form = form
        self._advice = signature.advice_layout
        self.id, self.policy, self.decides = session.id, session.policy, session.decides
        self.lost: PolicyBridgeError | None = None
        self._over = False
        self._record = np.zeros(1, form.record)
        self._copied: list[str] = []
        for each in form.content.features:
            if each.spec.name in signature.features.by_name:
                self._copied.append(each.spec.name)
            else:
                self._record[each.spec.name][0] = np.asarray(each.fill).reshape(each.spec.shape)
        self._most = max(1, min(MOST_DECIDED, _REPORT_AT // max(1, signature.features.size)))
        self._observations: list[bytes] = []
        self._advices: list[bytes] = []
        self._nanoseconds = 0

    def evaluate(self, observation: Values) -> Values:
        """Decide about one record of the features."""
        if self._over:
            raise PreconditionError("the session is over: it was closed")
        begun = perf_counter_ns()
        for name in self._copied:
            self._record[name][0] = observation[name].reshape(self._record[name][0].shape)
        advice = self._decide()
        if advice is None:
            return self._asked(observation)
        made = self._made(advice)
        self._nanoseconds += perf_counter_ns() - begun
        self._observations.append(observation.tobytes())
        self._advices.append(made.tobytes())
        if len(self._advices) >= self._most:
            self._tell()
        return made

    def _decide(self) -> npt.NDArray[Any] | None:
        """Give the advice; ``None``: the server is asked for it."""
        if self._drawing is None:
            advices, status = self._form.decide(self._record)
        else:
            advices, status, chance = self._form.draw(self._record, self._drawing)
        if status[0]:
            self._tell()
            if self._asks and self.lost is None:
                return None
            self.close()
            raise PolicyFailedError(SAID[Status(int(status[0]))])
        if self._drawing is not None:
            self.log_probability = chance
            self._chances.append(_CHANCE.pack(chance))
        advice: npt.NDArray[Any] = advices[0]
        return advice

    def _asked(self, observation: Values) -> Values:
        """Ask the server: the policy fails there, too, which counts it and says why."""
        self._kept.give_up()
        try:
            made = self._session.evaluate(observation)
        except BaseException:
            self.close()
            raise
        self.log_probability = self._session.log_probability
        return made

    def _made(self, advice: npt.NDArray[Any]) -> Values:
        (spec,) = self._advice.specs
        made: Values = np.zeros(1, self._advice.dtype)
        made[spec.name] = advice.reshape((1, *spec.shape))
        return made

    def _tell(self) -> None:
        """Report the decisions so far."""
        count, payload = len(self._advices), b"".join((*self._observations, *self._advices, *self._chances))
        nanoseconds, self._nanoseconds = self._nanoseconds, 0
        self._observations.clear()
        self._advices.clear()
        self._chances.clear()
        if not count:
            return
        self._kept.add(decided_lines(count, nanoseconds, payload, chances=self._drawing is not None))
        if self.lost is not None:
            return
        try:
            self._session.decided(count, nanoseconds, payload)
        except PolicyBridgeError as error:
            self.lost = error

    def context(self, name: str) -> None:
        """Name the function or module of the next decisions."""
        self._tell()
        self._kept.note(context_line(name))
        if self.lost is None:
            self._session.context(name)

    def report(self, outcome: Outcome) -> None:
        """Report the outcome, after all decisions."""
        self._tell()
        self._kept.add(outcome_line(outcome))
        if self.lost is not None:
            raise self.lost
        try:
            self._session.report(outcome)
        except PolicyBridgeError as error:
            self.lost = error
            raise
        self._kept.settled = True

    def conclude(self, outcome: Outcome) -> None:
        """Report the outcome, after all decisions, and end the session."""
        if self._over:
            raise PreconditionError("the session is over: it was closed")
        self._tell()
        self._kept.add(outcome_line(outcome))
        if self.lost is None:
            try:
                self._session.conclude(outcome)
            except PolicyBridgeError as error:
                self.lost = error
            else:
                self._kept.settled = True
        self.close()
        if self.lost is not None:
            raise self.lost

    def close(self) -> None:
        """Report the remaining decisions, and end the session."""
        if not self._over:
            self._over = True
            self._tell()
            self._settle()
            self._session.close()

    def _settle(self) -> None:
        """Wait until the server has kept the record; if it does not, keep it for the next client."""
        if self._spool is None:
            return
        if self.lost is None and not self._kept.settled:
            try:
                self._session.finish()
            except PolicyBridgeError as error:
                self.lost = error
            else:
                self._kept.settled = True
        if self.lost is None:
            self._spool.send(self._session.server, self._session.send_record)
        elif isinstance(self.lost, UnavailableError | DeadlineError) and not self._kept.settled:
            self._spool.keep(self._session.server, self._kept)

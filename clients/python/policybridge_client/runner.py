"""The model runner: a policy on a server, used as LLVM uses a model (llvm/include/llvm/Analysis/MLModelRunner.h)."""

import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from policybridge_client.addresses import scheme_of
from policybridge_client.connection import connect
from policybridge_client.contract import ClientSession, Connection, conclude
from policybridge_client.credentials import Credentials
from policybridge_client.local import Evaluate, decide_here, takes_forms
from policybridge_client.spool import Spool
from policybridge_client.trace_context import with_trace_context
from policybridge_core.errors import PreconditionError, UnsupportedError
from policybridge_serdes import (
    Exploration,
    Outcome,
    PolicyReference,
    PolicyVersion,
    SessionOptions,
    Signature,
    TensorSpec,
    tensor,
    zeros,
)
from policybridge_serdes.values import fit

_REPR_FEATURES: Final = 3
"""Number of features in a runner's repr."""

Advice = np.generic | npt.NDArray[Any] | str | bytes
"""A scalar if the advice has shape () or (1,), else an array."""


class ModelRunner(AbstractContextManager["ModelRunner"]):
    """Holds the features in buffers; each `evaluate` asks for one decision on them.

    ``runner[feature]``, by position or name, is the buffer itself: writing into it sets the feature. Assigning
    (``runner["threshold"] = 225``) also checks type and shape; features of varying shape and strings can only be
    assigned. Buffers keep their values from one decision to the next.

    Args:
        session: the session that gives the advice; it is closed with the runner. See `open_runner`.
        signature: the signature with which the session was opened.

    """

    _process: int | None = None
    """The process that alone may use the session; ``None``: each may use its own copy."""

    def __init__(self, session: ClientSession, signature: Signature) -> None:
        self._session = session
        self._closed = False
        self._signature = signature
        self._specs = signature.features.specs
        self._values = zeros(signature.features)
        self._fixed = {spec.name: tensor(spec, self._values) for spec in self._specs if spec.fixed}
        self._single = signature.advice.fixed and signature.advice.shape in ((), (1,))

    def __repr__(self) -> str:
        try:
            policy, session = self._session.policy, self._session.id
            asked = f"{policy.name}@{policy.version}, session {session}"
        except UnsupportedError:
            asked = "a policy without a name"
        features = ", ".join(map(str, self._specs[:_REPR_FEATURES])) + (
            ", …" if len(self._specs) > _REPR_FEATURES else ""
        )
        over = ", closed" if self._closed else ""
        return f"<ModelRunner of {asked}{over}: {features or 'no features'} -> {self._signature.advice}>"

    @property
    def session_id(self) -> str:
        """The server's id of this session."""
        return self._session.id

    @property
    def policy(self) -> PolicyVersion:
        """The version that gives the advice."""
        return self._session.policy

    def __getitem__(self, feature: int | str) -> npt.NDArray[Any]:
        """Return the feature's buffer."""
        name = self._name(feature)
        held: npt.NDArray[Any] = self._fixed[name] if name in self._fixed else self._values[name][0]
        return held

    def __setitem__(self, feature: int | str, value: npt.ArrayLike) -> None:
        """Set the feature.

        Raises:
            InvalidError: the value does not fit the feature's type or shape; the message names both.

        """
        name = self._name(feature)
        fitted = fit(self._signature.features.by_name[name], value)
        if name in self._fixed:
            self._fixed[name][...] = fitted
        else:
            self._values[name][0] = fitted.copy()

    def evaluate(self) -> Advice:
        """Ask for one decision; the features are not changed.

        Raises:
            PolicyBridgeError: there is no advice. After any error the session is closed.
            PreconditionError: another process opened the runner, before it was forked.

        """
        spec = self._signature.advice
        advice = tensor(spec, self._own_session.evaluate(self._values))
        if self._single:
            scalar: np.generic = advice.reshape(-1)[0]
            return scalar
        return advice.copy()

    @property
    def _is_own(self) -> bool:
        return self._process is None or self._process == os.getpid()

    @property
    def _own_session(self) -> ClientSession:
        # Two processes on one connection would read each other's answers.
        if not self._is_own:
            raise PreconditionError(
                f"process {self._process} opened this runner, and {os.getpid()} was forked from it: open one in each"
            )
        return self._session

    @property
    def log_probability(self) -> float | None:
        """The log-probability of the last advice; ``None`` in a session that does not explore."""
        return self._session.log_probability

    def context(self, name: str) -> None:
        """Tell the server that the next decisions belong to the function (or module) ``name``."""
        self._own_session.context(name)

    def report(self, status: str = "", **values: float) -> None:
        """Report the outcome, a status and named numbers: ``runner.report("ok", cycles=1e6)``.

        Raises:
            UnsupportedError: the server has no ledger.
            PolicyBridgeError: the ledger does not hold the outcome. After any error the session is closed.

        """
        self._own_session.report(Outcome(values, status))

    def conclude(self, status: str = "", **values: float) -> None:
        """Report the outcome, as `report`, and end the session: in one exchange with the server instead of two.

        Raises:
            PolicyBridgeError: as `report`. The runner is closed in any case.

        """
        try:
            conclude(self._own_session, Outcome(values, status))
        finally:
            self.close()

    def close(self) -> None:
        """End the session, in the process that opened it."""
        self._closed = True
        if self._is_own:
            self._session.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _name(self, feature: int | str) -> str:
        if isinstance(feature, int):
            return self._specs[feature].name
        if feature not in self._signature.features.by_name:
            raise KeyError(f"no feature {feature!r}; there are {', '.join(self._signature.features.by_name)}")
        return feature


def open_runner(  # noqa: PLR0913 - all but the address by keyword
    address: str,
    *,
    policy: PolicyReference | str,
    features: Sequence[TensorSpec],
    advice: TensorSpec,
    context: str = "",
    options: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    exploration: Exploration | None = None,
    evaluate: Evaluate = "auto",
    spool: bool = True,
    timeout: float = 10.0,
    credentials: Credentials | None = None,
) -> ModelRunner:
    """Open a session on its own connection; return its runner.

    Args:
        address: the server's, as for `connect`.
        policy: a reference, or a string such as ``inliner``, ``inliner@3`` or ``inliner@stable``.
        features: the specs of the features; the server ignores features that the policy does not know.
        advice: the spec of the advice.
        context: the name of the module or function that is compiled.
        options: options that the policy may read.
        labels: labels of the session in the ledger; ``traceparent`` is the trace context of the build, by default that
            of the environment's TRACEPARENT.
        exploration: how advice is sampled instead of taking the best; for policies with an advice head.
        evaluate: where decisions are made: ``there``, by the server; ``here``, in this process, by the version's form
            (docs/forms.md); ``auto``: here over gRPC if it has a form that fits and the advice is no float, else there.
            A socket answers faster than Python decides.
        spool: whether the record of a session that decides here is kept on disk if the server goes away, for the next
            client that reaches it (docs/clients.md).
        timeout: limit of each wait for the server, in seconds.
        credentials: for gRPC on TCP; by default those that the environment names.

    Raises:
        PolicyBridgeError: the server cannot be reached, the policy is unknown, or the signature does not fit it. Over
            the Unix socket, a signature that does not fit is reported by the first `ModelRunner.evaluate`.
        PreconditionError: ``evaluate`` is ``here``, and the version has no form that fits.

    """
    connection = connect(address, timeout=timeout, credentials=credentials)
    signature = Signature.of(features, advice)
    reference = PolicyReference.parse(policy) if isinstance(policy, str) else policy
    try:
        told = with_trace_context(labels or {})
        here = takes_forms(evaluate, address, advice)
        asked = SessionOptions(context, options or {}, told, exploration, evaluates=here)
        session = connection.open(reference, signature, asked)
        if here:
            kept = Spool() if spool else None
            session = decide_here(session, signature, exploration, asks=evaluate == "auto", spool=kept)
    except BaseException:
        connection.close()
        raise
    # A forked process has an engine of its own.
    return _OwningRunner(session, signature, connection, None if scheme_of(address)[0] == "inprocess" else os.getpid())


class _OwningRunner(ModelRunner):
    """A runner that also closes its connection."""

    def __init__(
        self, session: ClientSession, signature: Signature, connection: Connection, process: int | None
    ) -> None:
        super().__init__(session, signature)
        self._connection = connection
        self._process = process

    def close(self) -> None:
        super().close()
        if self._is_own:
            self._connection.close()

"""The model runner: a policy on a server, used as LLVM uses a model (llvm/include/llvm/Analysis/MLModelRunner.h)."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import numpy.typing as npt

from policybridge_client.connection import ClientSession, Connection, connect
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

Advice = np.generic | npt.NDArray[Any] | str | bytes
"""A scalar where the advice has one element (shape [1] or none), else an array."""


class ModelRunner(AbstractContextManager["ModelRunner"]):
    """Features set in place, and one decision for each `evaluate`.

    A feature is reached by its position or its name. What that gives is the buffer itself: writing into it sets the
    feature. Assigning (``runner["threshold"] = 225``) checks type and shape, and is the way for features whose shape
    varies and for strings. Buffers keep their values from one decision to the next.

    Args:
        session: answers; it is closed with the runner. See `open_runner`.
        signature: what the session was opened with.

    """

    def __init__(self, session: ClientSession, signature: Signature) -> None:
        self._session = session
        self._signature = signature
        self._specs = signature.features.specs
        self._values = zeros(signature.features)
        self._fixed = {spec.name: tensor(spec, self._values) for spec in self._specs if spec.fixed}
        self._single = signature.advice.fixed and signature.advice.shape in ((), (1,))

    @property
    def session_id(self) -> str:
        """The server's id of this session."""
        return self._session.id

    @property
    def policy(self) -> PolicyVersion:
        """The version that answers."""
        return self._session.policy

    def __getitem__(self, feature: int | str) -> npt.NDArray[Any]:
        """Give the feature's buffer."""
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
        """Ask for one decision; the features stay as they are.

        Raises:
            PolicyBridgeError: there is no advice, and the session is over.

        """
        spec = self._signature.advice
        advice = tensor(spec, self._session.evaluate(self._values))
        if self._single:
            scalar: np.generic = advice.reshape(-1)[0]
            return scalar
        return advice.copy()

    @property
    def log_probability(self) -> float | None:
        """The log-probability with which the last advice was chosen; ``None`` in a session that does not explore."""
        return self._session.log_probability

    def context(self, name: str) -> None:
        """Say that the following decisions belong to the function (or module) ``name``."""
        self._session.context(name)

    def report(self, status: str = "", **values: float) -> None:
        """Say what came of it, as a word and named numbers: ``runner.report("ok", cycles=1e6)``.

        Raises:
            UnsupportedError: the server keeps no ledger.
            PolicyBridgeError: the ledger does not hold it. The session is over then.

        """
        self._session.report(Outcome(values, status))

    def close(self) -> None:
        """End the session."""
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
    timeout: float = 10.0,
) -> ModelRunner:
    """Open a session on a connection of its own, and make its runner.

    Args:
        address: the server's, as for `connect`.
        policy: a reference, or a text such as ``inliner``, ``inliner@3`` or ``inliner@stable``.
        features: what will be observed; those that the policy does not know are accepted and ignored.
        advice: what is wanted.
        context: what is compiled.
        options: for the policy to read.
        labels: to find the session by.
        exploration: how to depart from the policy's best advice, for policies with an advice head.
        timeout: seconds, for each wait.

    Raises:
        PolicyBridgeError: no server, unknown policy, or a signature that does not fit it. Over the Unix socket the
            last comes out at the first `ModelRunner.evaluate`.

    """
    connection = connect(address, timeout=timeout)
    signature = Signature.of(features, advice)
    reference = PolicyReference.parse(policy) if isinstance(policy, str) else policy
    try:
        asked = SessionOptions(context, options or {}, labels or {}, exploration)
        session = connection.open(reference, signature, asked)
    except BaseException:
        connection.close()
        raise
    return _OwningRunner(session, signature, connection)


class _OwningRunner(ModelRunner):
    """A runner whose connection serves nobody else."""

    def __init__(self, session: ClientSession, signature: Signature, connection: Connection) -> None:
        super().__init__(session, signature)
        self._connection = connection

    def close(self) -> None:
        super().close()
        self._connection.close()

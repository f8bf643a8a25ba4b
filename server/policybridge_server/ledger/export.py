"""Trajectories as files: LLVM's training log, and the table of all formats."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np

from policybridge_core.errors import InvalidError, NotFoundError
from policybridge_core.plugins import Table
from policybridge_serdes import ElementType, Layout, Signature, TensorSpec
from policybridge_serdes.training_log import LogHeader, TrainingLogWriter
from policybridge_server.ledger.query import Query
from policybridge_server.ledger.reader import LedgerReader
from policybridge_server.ledger.trajectory import DecisionBatch

REWARD: Final = "reward"

FORMATS: Final = Table(
    kind="export format",
    group="policybridge.exports",
    own={
        "log": "policybridge_server.ledger.export:export_log [server]",
        "parquet": "policybridge_server.ledger.parquet:export_parquet [parquet]",
    },
)
"""Functions ``(reader, query, file, outcome's name or None) -> number of decisions``."""


def one_signature(batches: Iterator[DecisionBatch]) -> tuple[Signature, Iterator[DecisionBatch]]:
    """Give the signature of the first of ``batches``, and all of them, which must have it too.

    Raises:
        NotFoundError: there is none.
        InvalidError: while iterating, one has another signature.

    """
    first = next(batches, None)
    if first is None:
        raise NotFoundError("no session with decisions matches")

    def checked() -> Iterator[DecisionBatch]:
        yield first
        for batch in batches:
            if batch.signature != first.signature:
                raise InvalidError(
                    f"sessions {first.sessions[0].id} and {batch.sessions[0].id} have different features; "
                    "a file holds sessions of one signature: choose them by policy, version or label"
                )
            yield batch

    return first.signature, checked()


def export_log(reader: LedgerReader, query: Query, target: Path, score: str | None) -> int:
    """Write LLVM's training log: the features, the decision as the last of them, and a reward where ``score`` is given.

    Contexts are called ``SESSION`` or ``SESSION/CONTEXT``, so that every one is one trajectory. The reward of each
    decision is the outcome ``score`` of its session.

    Raises:
        InvalidError: the sessions have several signatures or one that varies, or a session lacks the outcome.
        NotFoundError: no decision matches.

    """
    signature, batches = one_signature(reader.batches(query))
    features = Layout.of([*signature.features.specs, signature.advice])
    reward = None if score is None else TensorSpec(REWARD, ElementType.DOUBLE)
    count = 0
    with target.open("wb") as file, TrainingLogWriter(file, LogHeader(features, reward, signature.advice)) as log:
        for batch in batches:
            _log_batch(log, batch, score)
            count += len(batch)
    return count


def _log_batch(log: TrainingLogWriter, batch: DecisionBatch, score: str | None) -> None:
    rewards = None if score is None else batch.outcome(score)
    named = ""
    for row in range(len(batch)):
        session, context = batch.sessions[batch.session[row]].id, batch.contexts[row]
        name = f"{session}/{context}" if context else session
        if name != named:
            log.context(name)
            named = name
        log.observation(batch.observations[row].tobytes() + batch.advices[row].tobytes())
        if rewards is not None:
            if np.isnan(rewards[row]):
                raise InvalidError(f"the session {session} has no outcome {score!r}")
            log.outcome(rewards[row])


def column(values: Any, spec: TensorSpec) -> list[Any]:
    """Give one feature of many records: a list of values for a scalar, otherwise a list of lists of values."""
    if not spec.fixed:
        return [value.reshape(-1).tolist() for value in values[spec.name]]
    plain = values[spec.name].reshape(len(values), -1)
    listed: list[Any] = (plain[:, 0] if spec.count == 1 else plain).tolist()
    return listed

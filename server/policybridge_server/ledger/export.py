"""Trajectories as files: LLVM's training log, and the table of all formats."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from policybridge_core.errors import InvalidError, NotFoundError
from policybridge_core.plugins import Table
from policybridge_serdes import ElementType, Layout, Signature, TensorSpec
from policybridge_serdes.training_log import LogHeader, TrainingLogWriter
from policybridge_server.ledger.query import Query
from policybridge_server.ledger.reader import LedgerReader
from policybridge_server.ledger.trajectory import DecisionBatch

REWARD: Final = "reward"

PART: Final = ".part"
"""The end of a file's name, or a folder's, while it is written."""

FORMATS: Final = Table(
    kind="export format",
    group="policybridge.exports",
    own={
        "log": "policybridge_server.ledger.export:export_log [server]",
        "minari": "policybridge_server.ledger.minari:export_minari [minari]",
        "parquet": "policybridge_server.ledger.parquet:export_parquet [parquet]",
        "tfrecord": "policybridge_server.ledger.tfrecord:export_tfrecord [tfrecord]",
    },
)
"""Functions ``(reader, query, file, `Score` or None) -> number of decisions``."""


@dataclass(frozen=True)
class Score:
    """The outcome that is the reward.

    Attributes:
        name: the outcome's.
        default: its value for sessions that lack it; ``None``: they are an error.

    """

    name: str
    default: float | None = None

    def of(self, batch: DecisionBatch) -> npt.NDArray[np.float64]:
        """Give the value for each decision's session; shape [n].

        Raises:
            InvalidError: a session lacks the outcome, and there is no default.

        """
        values = batch.outcome(self.name)
        lacking = np.isnan(values)
        if not lacking.any():
            return values
        if self.default is None:
            session = batch.sessions[batch.session[int(np.argmax(lacking))]].id
            raise InvalidError(
                f"the session {session} has no outcome {self.name!r}; give a value for such by --score-default"
            )
        filled: npt.NDArray[np.float64] = np.where(lacking, self.default, values)
        return filled


def one_signature(batches: Iterator[DecisionBatch]) -> tuple[Signature, Iterator[DecisionBatch]]:
    """Give the signature of the first of ``batches``, and all of them, which must have it too.

    Raises:
        NotFoundError: there is no decision.
        InvalidError: while iterating, a decision has another signature.

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
                    "a file holds decisions of one signature: choose them by policy, version, label or kind"
                )
            yield batch

    return first.signature, checked()


def trajectory_name(batch: DecisionBatch, row: int) -> str:
    """Name the trajectory of a decision: ``SESSION``, or ``SESSION/CONTEXT``."""
    session, context = batch.sessions[batch.session[row]].id, batch.contexts[row]
    return f"{session}/{context}" if context else session


def export_log(reader: LedgerReader, query: Query, target: Path, score: Score | None) -> int:
    """Write LLVM's training log: the features, the decision as the last of them, and a reward if ``score`` is given.

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


def _log_batch(log: TrainingLogWriter, batch: DecisionBatch, score: Score | None) -> None:
    rewards = None if score is None else score.of(batch)
    named = ""
    for row in range(len(batch)):
        name = trajectory_name(batch, row)
        if name != named:
            log.context(name)
            named = name
        log.observation(batch.observations[row].tobytes() + batch.advices[row].tobytes())
        if rewards is not None:
            log.outcome(rewards[row])


def column(values: Any, spec: TensorSpec) -> list[Any]:
    """Give one feature of many records: a list of values for a scalar, otherwise a list of lists of values."""
    if not spec.fixed:
        return [value.reshape(-1).tolist() for value in values[spec.name]]
    plain = values[spec.name].reshape(len(values), -1)
    listed: list[Any] = (plain[:, 0] if spec.count == 1 else plain).tolist()
    return listed

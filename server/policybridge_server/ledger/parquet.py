"""Parquet, by pyarrow: one row per decision, one column per feature."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from policybridge_core.errors import InvalidError
from policybridge_serdes import ElementType, Signature, TensorSpec
from policybridge_server.ledger.export import Score, column, one_signature
from policybridge_server.ledger.listing import COMMAND
from policybridge_server.ledger.query import Query
from policybridge_server.ledger.reader import LedgerReader
from policybridge_server.ledger.trajectory import DecisionBatch

_FIXED: Final = [
    ("session", pa.string()),
    ("policy", pa.string()),
    ("version", pa.uint64()),
    ("digest", pa.string()),
    ("status", pa.string()),
    ("step", pa.uint64()),
    ("context", pa.string()),
    ("log_probability", pa.float64()),
    ("nanoseconds", pa.int64()),
]

_TYPES: Final = {
    ElementType.FLOAT: pa.float32(),
    ElementType.DOUBLE: pa.float64(),
    ElementType.BOOL: pa.bool_(),
    ElementType.BYTES: pa.binary(),
    ElementType.STRING: pa.string(),
}


def export_parquet(reader: LedgerReader, query: Query, target: Path, score: Score | None) -> int:
    """Write one row per decision.

    Features are called ``feature.NAME``, outcomes ``outcome.NAME``, labels ``label.NAME``.
    Tensors of more than one element are lists, in row-major order. Absent outcomes, labels and log-probabilities are
    null. The label that is a whole command is left out.

    Args:
        reader: reads the ledger.
        query: selects the sessions.
        target: the path of the file to write.
        score: the one outcome to write, with a default for sessions without it; ``None``: all outcomes.

    Raises:
        InvalidError: the sessions have several signatures.
        NotFoundError: no decision matches.

    """
    names, labels = _names(reader, query)
    names = names if score is None else [score.name]
    filled = {} if score is None or score.default is None else {score.name: score.default}
    signature, batches = one_signature(reader.batches(query))
    schema = _schema(signature, names, labels)
    count = 0
    with pq.ParquetWriter(target, schema, compression="zstd") as writer:
        for batch in batches:
            writer.write_table(pa.table(_columns(batch, names, filled) | _labels(batch, labels), schema))
            count += len(batch)
    return count


def _names(reader: LedgerReader, query: Query) -> tuple[list[str], list[str]]:
    """Give the names of all outcomes and labels of the sessions."""
    outcomes, labels = set[str](), set[str]()
    for session in reader.sessions(query):
        outcomes |= session.outcome.values.keys() if session.outcome else set()
        labels |= session.labels.keys()
    return sorted(outcomes), sorted(labels - {COMMAND})


def _schema(signature: Signature, outcomes: list[str], labels: list[str]) -> pa.Schema:
    features = [(f"feature.{spec.name}", _type(spec)) for spec in signature.features.specs]
    advice = ("advice", _type(signature.advice))
    numbers = [(f"outcome.{name}", pa.float64()) for name in outcomes]
    return pa.schema([*_FIXED, *features, advice, *numbers, *((f"label.{name}", pa.string()) for name in labels)])


def _type(spec: TensorSpec) -> pa.DataType:
    kind = _TYPES.get(spec.type) or pa.from_numpy_dtype(spec.type.dtype)
    if spec.fixed and spec.count == 1:
        return kind
    if spec.fixed and not spec.count:
        raise InvalidError(f"{spec}: Parquet cannot hold a tensor without elements")
    return pa.list_(kind, spec.count) if spec.fixed else pa.list_(kind)


def _columns(batch: DecisionBatch, outcomes: list[str], filled: Mapping[str, float]) -> dict[str, Any]:
    sessions = [batch.sessions[index] for index in batch.session]
    columns: dict[str, Any] = {
        "session": [session.id for session in sessions],
        "policy": [session.policy.name for session in sessions],
        "version": [session.policy.version for session in sessions],
        "digest": [session.policy.digest for session in sessions],
        "status": [session.outcome.status if session.outcome else None for session in sessions],
        "step": batch.steps,
        "context": batch.contexts.tolist(),
        "log_probability": _or_null(batch.log_probabilities),
        "nanoseconds": batch.nanoseconds,
    }
    columns |= {f"feature.{spec.name}": column(batch.observations, spec) for spec in batch.signature.features.specs}
    columns["advice"] = column(batch.advices, batch.signature.advice)
    values = {name: batch.outcome(name) for name in outcomes}
    values |= {name: np.where(np.isnan(values[name]), default, values[name]) for name, default in filled.items()}
    return columns | {f"outcome.{name}": _or_null(each) for name, each in values.items()}


def _labels(batch: DecisionBatch, names: list[str]) -> dict[str, Any]:
    given = [batch.sessions[index].labels for index in batch.session]
    return {f"label.{name}": [labels.get(name) for labels in given] for name in names}


def _or_null(numbers: Any) -> Any:
    return pa.array(numbers, mask=np.isnan(numbers))

"""TFRecord files of ``tf.train.SequenceExample``, which the trainer of ml-compiler-opt reads; without TensorFlow.

The message (tensorflow/core/example/example.proto and feature.proto) has only maps, lists and numbers, so it is put
together from bytes: a class of protobuf's would clash with TensorFlow's own if both are loaded.
"""

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import google_crc32c
import numpy as np

from policybridge_core.errors import InvalidError
from policybridge_serdes import ElementType, TensorSpec
from policybridge_server.ledger.export import REWARD, Score, column, one_signature, trajectory_name
from policybridge_server.ledger.query import Query
from policybridge_server.ledger.reader import LedgerReader
from policybridge_server.ledger.trajectory import DecisionBatch

LOG_PROBABILITY: Final = "log_probability"
"""The feature list of the log-probabilities, in sessions that explored."""

_BYTES, _FLOATS, _INTEGERS = 1, 2, 3
"""The fields of ``Feature``."""

_MASK: Final = 0xA282EAD8

Columns = dict[str, list[bytes]]
"""By feature list: the features of all steps so far, serialized."""


def export_tfrecord(reader: LedgerReader, query: Query, target: Path, score: Score | None) -> int:
    """Write one SequenceExample for each trajectory, which is a session, or a function of one if LLVM names it.

    The feature lists are the features, the advice, by their own names; ``reward`` (float) if ``score`` is given, in
    each step the session's outcome; and ``log_probability`` in sessions that explored. The context has ``session``,
    ``policy``, ``version`` and ``module``, the compiler's name of the module.

    Raises:
        InvalidError: the sessions have several signatures, or one lacks the outcome.
        NotFoundError: no decision matches.

    """
    signature, batches = one_signature(reader.batches(query))
    encode = {spec.name: _encoder(spec) for spec in (*signature.features.specs, signature.advice)}
    count = 0
    with target.open("wb") as file:
        for context, columns in _trajectories(batches, encode, score):
            file.write(framed(_message((1, _map(context)), (2, _map(_lists(columns))))))
            count += len(next(iter(columns.values())))
    return count


def _trajectories(
    batches: Iterator[DecisionBatch], encode: Mapping[str, Callable[[Any], bytes]], score: Score | None
) -> Iterator[tuple[dict[str, bytes], Columns]]:
    """Give the context and the steps of each trajectory; one may go on in the next batch."""
    named, context, columns = "", dict[str, bytes](), Columns()
    for batch in batches:
        rows = _rows(batch, encode, score)
        for row in range(len(batch)):
            name = trajectory_name(batch, row)
            if name != named:
                if columns:
                    yield context, columns
                named, context, columns = name, _context(batch, row), {each: [] for each in rows}
            for each, values in rows.items():
                columns.setdefault(each, []).append(values[row])
    if columns:
        yield context, columns


def _rows(batch: DecisionBatch, encode: Mapping[str, Callable[[Any], bytes]], score: Score | None) -> Columns:
    specs, advice = batch.signature.features.specs, batch.signature.advice
    rows = {spec.name: [encode[spec.name](value) for value in column(batch.observations, spec)] for spec in specs}
    rows[advice.name] = [encode[advice.name](value) for value in column(batch.advices, advice)]
    if score is not None:
        rows[REWARD] = [_floats([value]) for value in score.of(batch)]
    if not np.isnan(batch.log_probabilities).any():
        rows[LOG_PROBABILITY] = [_floats([value]) for value in batch.log_probabilities]
    return rows


def _context(batch: DecisionBatch, row: int) -> dict[str, bytes]:
    session = batch.sessions[batch.session[row]]
    texts = {"session": session.id, "policy": session.policy.name, "module": str(batch.contexts[row])}
    context = {name: _texts([text]) for name, text in texts.items()}
    return {**context, "version": _integers([session.policy.version])}


def _lists(columns: Columns) -> dict[str, bytes]:
    return {name: b"".join(_field(1, feature) for feature in features) for name, features in columns.items()}


def _encoder(spec: TensorSpec) -> Callable[[Any], bytes]:
    """Return a serializer of a feature of one step: from a number, or from a list of numbers."""
    if spec.type.is_text:
        encode: Callable[[Sequence[Any]], bytes] = _texts
    elif spec.type in (ElementType.FLOAT, ElementType.DOUBLE):
        encode = _floats
    elif spec.type is ElementType.UINT64:
        raise InvalidError(f"{spec}: a SequenceExample has no unsigned integers of 64 bits")
    else:
        encode = _integers
    known: dict[Any, bytes] = {}

    def remembered(value: Any) -> bytes:
        # Most features are small counts, of which few different ones occur.
        if isinstance(value, list):
            return encode(value)
        encoded = known.get(value)
        if encoded is None:
            encoded = encode([value])
            if len(known) < 1 << 16:
                known[value] = encoded
        return encoded

    return remembered


def _floats(values: Sequence[float]) -> bytes:
    return _field(_FLOATS, _field(1, np.asarray(values, "<f4").tobytes()))


def _integers(values: Sequence[int]) -> bytes:
    return _field(_INTEGERS, _field(1, b"".join(_varint(int(value) & (1 << 64) - 1) for value in values)))


def _texts(values: Sequence[str | bytes]) -> bytes:
    data = (value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value for value in values)
    return _field(_BYTES, b"".join(_field(1, each) for each in data))


def _map(entries: Mapping[str, bytes]) -> bytes:
    return b"".join(_field(1, _message((1, name.encode()), (2, value))) for name, value in entries.items())


def _message(*fields: tuple[int, bytes]) -> bytes:
    return b"".join(_field(number, data) for number, data in fields)


def _field(number: int, data: bytes) -> bytes:
    """Serialize a field of protobuf's wire type 2: bytes, a message, or packed numbers."""
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def framed(record: bytes) -> bytes:
    """Give a record of a TFRecord file: length and bytes, each with a masked CRC-32C (tensorflow/core/lib/io)."""
    length = struct.pack("<Q", len(record))
    return length + _masked(length) + record + _masked(record)


def _masked(data: bytes) -> bytes:
    crc = google_crc32c.value(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + _MASK) & 0xFFFFFFFF)

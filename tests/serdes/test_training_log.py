"""LLVM's training log: read as LLVM writes it, written as LLVM's own reader takes it."""

import io
import json
import re
import tracemalloc
from collections.abc import Sequence
from contextlib import suppress

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from policybridge_core.errors import InvalidError, PolicyBridgeError, PreconditionError, TooLargeError
from policybridge_serdes import VARIES, ElementType, Layout, TensorSpec, Values, pack, tensor
from policybridge_serdes.interactive import MAX_LINE
from policybridge_serdes.training_log import LogHeader, TrainingLogReader, TrainingLogWriter

from .strategies import FIXED_SHAPES, FIXED_TYPES, NAMES, arrays, bits_of, fixed_layouts, record, values_of

FEATURES = Layout.of(
    [
        TensorSpec("cost", ElementType.INT64, (2,)),
        TensorSpec("weight", ElementType.FLOAT),
        TensorSpec("inlining_decision", ElementType.INT64),
    ]
)
SCORED = LogHeader(FEATURES, score=TensorSpec("delta_size", ElementType.FLOAT))

# Byte for byte what llvm::Logger gives: the decision is a feature, f's counting goes on after g.
HEADER_LINE = (
    b'{"features":[{"name":"cost","type":"int64_t","port":0,"shape":[2]},'
    b'{"name":"weight","type":"float","port":0,"shape":[1]},'
    b'{"name":"inlining_decision","type":"int64_t","port":0,"shape":[1]}],'
    b'"score":{"name":"delta_size","type":"float","port":0,"shape":[1]}}\n'
)
FIRST = bytes.fromhex("0100000000000000 feffffffffffffff 0000003f 0100000000000000")
SECOND = bytes.fromhex("0a0a0a0a0a0a0a0a 0000000000000080 0000c07f 0000000000000000")
PARTS = [
    HEADER_LINE,
    b'{"context":"f"}\n',
    *(b'{"observation":0}\n', FIRST + b"\n", b'{"outcome":0}\n', bytes.fromhex("0000803f 0a")),
    b'{"context":"g"}\n',
    *(b'{"observation":0}\n', SECOND + b"\n", b'{"outcome":0}\n', bytes.fromhex("0a0a0a0a 0a")),
    b'{"context":"f"}\n',
    *(b'{"observation":1}\n', SECOND + b"\n", b'{"outcome":1}\n', bytes.fromhex("000080bf 0a")),
]
LOG = b"".join(PARTS)
PLAIN_LOG = HEADER_LINE.partition(b',"score"')[0] + b'}\n{"context":""}\n{"observation":0}\n' + FIRST + b"\n"


def reader(data: bytes, limit: int = 1 << 20) -> TrainingLogReader:
    return TrainingLogReader(io.BytesIO(data), limit)


def read_all(data: bytes) -> int:
    return sum(1 for _ in reader(data))


def test_a_log_of_llvms_is_read_with_contexts_numbers_and_rewards() -> None:
    log = reader(LOG)
    assert log.header == SCORED
    read = [(seen.context, seen.number, seen.values.tobytes(), seen.reward) for seen in log]
    assert read == [("f", 0, FIRST, [1.0]), ("g", 0, SECOND, np.frombuffer(b"\n" * 4, "<f4")), ("f", 1, SECOND, [-1.0])]


def test_features_are_views_by_name_the_decision_among_them() -> None:
    (seen,) = reader(PLAIN_LOG)
    assert {name: array.tolist() for name, array in seen.features.items()} == {
        "cost": [1, -2],
        "weight": [0.5],
        "inlining_decision": [1],
    }
    assert all(np.shares_memory(array, seen.values) for array in seen.features.values())


def test_a_log_without_a_score_has_no_rewards() -> None:
    assert [seen.reward for seen in reader(PLAIN_LOG)] == [None]


def test_what_llvm_sends_to_an_interactive_channel_is_a_log_too() -> None:
    advice = b',"advice":{"name":"inlining_decision","type":"int64_t","port":0,"shape":[1]}}\n'
    log = reader(PLAIN_LOG.replace(b"}\n", advice, 1))
    assert log.header.advice == TensorSpec("inlining_decision", ElementType.INT64)
    assert len(list(log)) == 1


def test_the_log_is_written_byte_for_byte_as_llvm_does() -> None:
    file = io.BytesIO()
    with TrainingLogWriter(file, SCORED) as log:
        log.context("f")
        assert log.observation(pack(FEATURES, {"cost": [1, -2], "weight": 0.5, "inlining_decision": 1})) == 0
        log.outcome(1)
        log.context("g")
        assert log.observation(SECOND) == 0
        log.outcome(np.frombuffer(b"\n" * 4, "<f4"))
        log.context("f")
        assert log.observation(SECOND) == 1
        log.outcome([-1.0])
    assert file.getvalue() == LOG


def test_a_log_without_a_score_is_written_byte_for_byte_as_llvm_does() -> None:
    file = io.BytesIO()
    with TrainingLogWriter(file, LogHeader(FEATURES)) as log:
        log.context("")
        log.observation(FIRST)
    assert file.getvalue() == PLAIN_LOG


# What llvm/lib/Analysis/models/log_reader.py takes.
READ_BY_LLVM = {"float", "double", *(f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64))}


@pytest.mark.parametrize("kind", [kind for kind in ElementType if not kind.is_text])
def test_each_type_is_written_as_one_that_llvms_reader_knows_and_comes_back_as_it_was(kind: ElementType) -> None:
    header = LogHeader(Layout.of([TensorSpec("x", kind, (2,))]), TensorSpec("reward", kind), TensorSpec("advice", kind))
    data = written(header, [])
    line = json.loads(data)
    assert {spec["type"] for spec in (*line["features"], line["score"], line["advice"])} <= READ_BY_LLVM
    assert reader(data).header == header


def test_a_bool_is_a_byte_of_0_or_1_for_llvms_reader() -> None:
    features = Layout.of([TensorSpec("flag", ElementType.BOOL, (2,))])
    data = written(LogHeader(features), [("f", pack(features, {"flag": [True, False]}), None)])
    assert data.startswith(b'{"features":[{"name":"flag","type":"int8_t","port":0,"shape":[2],"bool":true}]}\n')
    assert data.endswith(b"\x01\x00\n")
    (seen,) = reader(data)
    assert seen.features["flag"].dtype == np.bool_


def test_the_file_stays_the_callers() -> None:
    file = io.BytesIO()
    with TrainingLogWriter(file, LogHeader(FEATURES)):
        pass
    assert not file.closed


@st.composite
def logs(draw: st.DrawFn) -> tuple[LogHeader, list[tuple[str, Values, Values | None]]]:
    features = draw(fixed_layouts())
    score = draw(st.none() | st.builds(TensorSpec, NAMES, FIXED_TYPES, FIXED_SHAPES))
    advice = draw(st.none() | st.builds(TensorSpec, NAMES, FIXED_TYPES, FIXED_SHAPES))
    rewards = st.none() if score is None else arrays(score).map(lambda array: record(Layout((score,)), array))
    observations = st.lists(st.tuples(NAMES, values_of(features), rewards), max_size=5)
    return LogHeader(features, score, advice), draw(observations)


@settings(deadline=None)
@given(logs())
def test_any_log_is_read_as_it_was_written(case: tuple[LogHeader, list[tuple[str, Values, Values | None]]]) -> None:
    header, observations = case
    data = written(header, observations)
    log = reader(data)
    assert log.header == header
    read = list(log)
    assert [seen.context for seen in read] == [context for context, _, _ in observations]
    for index, (seen, (context, values, reward)) in enumerate(zip(read, observations, strict=True)):
        assert seen.number == [name for name, _, _ in observations[:index]].count(context)
        assert bits_of(header.features, seen.values) == bits_of(header.features, values)
        if header.score is not None and reward is not None and seen.reward is not None:
            assert seen.reward.tobytes() == reward.tobytes()


def written(header: LogHeader, observations: Sequence[tuple[str, Values, Values | None]]) -> bytes:
    file = io.BytesIO()
    with TrainingLogWriter(file, header) as log:
        for context, values, reward in observations:
            log.context(context)
            log.observation(values)
            if header.score is not None and reward is not None:
                log.outcome(tensor(header.score, reward))
    return file.getvalue()


def test_a_log_is_not_loaded_as_a_whole() -> None:
    header = LogHeader(Layout.of([TensorSpec("x", ElementType.INT8, (1 << 16,))]))
    data = written(header, [("f", record(header.features, np.zeros(1 << 16, "i1")), None)] * 100)
    log = reader(data)
    tracemalloc.start()
    assert sum(1 for _ in log) == 100
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20


def test_a_truncated_log_is_refused_with_the_byte_at_which_the_truncated_part_begins() -> None:
    begins = 0
    for index, part in enumerate(PARTS):
        whole = index > 0 and part.startswith((b'{"context"', b'{"observation"'))
        for end in range(begins + whole, begins + len(part)):
            with pytest.raises(InvalidError, match=f"training log, byte {begins}: "):
                read_all(LOG[:end])
        begins += len(part)


@pytest.mark.parametrize(("parts", "count"), [(1, 0), (2, 0), (6, 1), (7, 1), (11, 2), (12, 2), (16, 3)])
def test_a_log_may_end_after_its_header_a_context_or_an_outcome(parts: int, count: int) -> None:
    assert read_all(b"".join(PARTS[:parts])) == count


@given(st.integers(0, len(LOG)), st.integers(0, 5), st.binary(max_size=5))
def test_a_damaged_log_is_read_or_refused(place: int, cut: int, put: bytes) -> None:
    with suppress(InvalidError, TooLargeError):
        read_all(LOG[:place] + put + LOG[place + cut :])


@pytest.mark.parametrize(
    ("log", "byte", "message"),
    [
        (b"", 0, "header line"),
        (b"\x7fELF\n", 0, "header line"),
        (b"[" * 100_000 + b"\n", 0, "header line"),
        (HEADER_LINE.replace(b"cost", b"weight"), 0, "two tensors are named 'weight'"),
        (HEADER_LINE.replace(b"int64_t", b"half"), 0, "unknown element type 'half'"),
        (HEADER_LINE.replace(b"[2]", b"[-1]"), 0, "cost: int64_t[-1]: LLVM's training log holds tensors of fixed size"),
        (HEADER_LINE + b"\n", len(HEADER_LINE), "observation line"),
        (HEADER_LINE + b'{"outcome":0}\n', len(HEADER_LINE), "observation line"),
        (HEADER_LINE + b'{"context":1}\n', len(HEADER_LINE), "context line"),
        (LOG.replace(b'{"outcome":0}', b'{"outcome":1}'), LOG.index(b'{"outcome"'), "observation 1 where that of 0 is"),
        (LOG.replace(b'{"outcome":0}', b'{"context":0}'), LOG.index(b'{"outcome"'), "the outcome of observation 0"),
        (LOG.replace(FIRST, FIRST + b"x"), LOG.index(FIRST), "28 bytes of tensors do not end in a newline"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_a_malformed_log_is_refused_with_the_byte_and_the_reason(log: bytes, byte: int, message: str) -> None:
    with pytest.raises(InvalidError, match=f"^training log, byte {byte}: .*{re.escape(message)}"):
        read_all(log)


def test_what_comes_before_the_damage_is_read() -> None:
    observations = iter(reader(LOG[:-1]))
    assert [next(observations).number, next(observations).number] == [0, 0]
    with pytest.raises(InvalidError, match="ends after"):
        next(observations)


@pytest.mark.parametrize("old", [b'"shape":[2]', b'"shape":[1]}}'], ids=["feature", "score"])
@pytest.mark.parametrize("count", [1 << 20, 1 << 28, 1 << 62])
def test_a_header_that_promises_gigabytes_is_refused(old: bytes, count: int) -> None:
    line = HEADER_LINE.replace(old, re.sub(rb"\d+", b"%d" % count, old))
    with pytest.raises(TooLargeError, match="training log, byte 0: "):
        reader(line)


def test_a_line_without_end_is_refused() -> None:
    with pytest.raises(TooLargeError, match="a line is longer than"):
        reader(b"x" * (MAX_LINE + 1))


def test_a_bool_that_is_neither_0_nor_1_is_refused_at_its_byte() -> None:
    header = LogHeader(Layout.of([TensorSpec("flag", ElementType.BOOL)])).to_line()
    with pytest.raises(InvalidError, match=f"byte {len(header) + 18}: flag: bool"):
        read_all(header + b'{"observation":0}\n\7\n')


@pytest.mark.parametrize(
    "spec", [TensorSpec("v", ElementType.INT8, (VARIES,)), TensorSpec("s", ElementType.STRING)], ids=str
)
def test_tensors_that_llvm_cannot_log_are_refused_at_once(spec: TensorSpec) -> None:
    for wrong in ((Layout((spec,)),), (FEATURES, spec), (FEATURES, None, spec)):
        with pytest.raises(InvalidError, match=re.escape(str(spec))):
            LogHeader(*wrong)


def test_the_outcome_is_due_before_anything_else_in_a_log_with_a_score() -> None:
    log = TrainingLogWriter(io.BytesIO(), SCORED)
    log.observation(FIRST)
    with pytest.raises(PreconditionError, match="outcome of observation 0 is due"):
        log.observation(FIRST)
    with pytest.raises(PreconditionError, match="outcome of observation 0 is due"):
        log.context("g")
    log.outcome(1.0)
    log.context("g")


def test_a_log_does_not_end_while_an_outcome_is_due() -> None:
    with pytest.raises(PreconditionError, match="is due"), TrainingLogWriter(io.BytesIO(), SCORED) as log:
        log.observation(FIRST)


def test_an_error_in_the_block_is_not_hidden_by_an_outcome_that_is_due() -> None:
    with pytest.raises(ZeroDivisionError), TrainingLogWriter(io.BytesIO(), SCORED) as log:
        log.outcome(1 / log.observation(FIRST))


def test_an_outcome_without_an_observation_is_out_of_order() -> None:
    with pytest.raises(PreconditionError):
        TrainingLogWriter(io.BytesIO(), SCORED).outcome(1.0)


def test_a_log_without_a_score_takes_no_outcome() -> None:
    log = TrainingLogWriter(io.BytesIO(), LogHeader(FEATURES))
    log.observation(FIRST)
    with pytest.raises(PreconditionError):
        log.outcome(1.0)


def test_nothing_is_written_of_what_does_not_fit() -> None:
    file = io.BytesIO()
    log = TrainingLogWriter(file, SCORED)
    with pytest.raises(InvalidError, match="3 bytes came where the features take 28"):
        log.observation(b"abc")
    log.observation(FIRST)
    before = file.getvalue()
    with pytest.raises(InvalidError, match="delta_size"):
        log.outcome([1.0, 2.0])
    assert file.getvalue() == before
    log.outcome(0.5)
    with pytest.raises(PolicyBridgeError, match="no Unicode text"):
        log.context("\udcff")
    assert read_all(file.getvalue()) == 1

"""The writer: how large its transactions are, when it prunes, and what is logged if records are left out."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial

import pytest

from policybridge_bench.network import SIGNATURE
from policybridge_core.errors import PolicyBridgeError, UnavailableError
from policybridge_serdes import ElementType, PolicyVersion, Signature, TensorSpec
from policybridge_server.backends.contract import SessionView
from policybridge_server.ledger import writer
from policybridge_server.ledger.recorder import LedgerRecorder
from policybridge_server.ledger.records import Lost, Record, Segment
from policybridge_server.ledger.writer import Writer
from tests.server.ledger.asking import rows
from tests.server.ledger.test_bounds import ADVICE
from tests.server.publishing.policies import wait_for

MIB = 1 << 20


class Kept:
    """A store in memory; implements `Store`.

    Args:
        room: bytes of the largest transaction that it takes, while there is little room.
        tight: transactions before there is enough room again.

    """

    def __init__(self, room: int = 1 << 40, tight: int = 0) -> None:
        self.transactions: list[list[Record]] = []
        self.pruned = 0
        self._room = room
        self._tight = tight

    def write(self, records: Sequence[Record]) -> Mapping[int, PolicyBridgeError]:
        if len(self.transactions) < self._tight and sum(record.size for record in records) > self._room:
            raise UnavailableError("no space left on device")
        self.transactions.append(list(records))
        return {}

    def prune(self) -> None:
        self.pruned += 1

    def close(self) -> None: ...

    @property
    def sizes(self) -> list[int]:
        return [sum(record.size for record in records) for records in self.transactions]


def written(store: Kept, records: Sequence[Record]) -> None:
    """Let a writer write records that wait already when it begins."""
    writing = Writer(store)
    for record in records:
        writing.put(record)
    writing.start(lambda call, *arguments: call(*arguments), lambda: None)
    writing.close()
    assert [record for each in store.transactions for record in each] == records


def large(count: int, size: int = MIB) -> list[Record]:
    return [Lost(f"s{number}", 1, size) for number in range(count)]


def test_a_transaction_is_bounded_however_many_records_wait_and_a_larger_record_is_written_alone() -> None:
    store = Kept()
    written(store, [*large(10), *large(1, 9 * MIB), *large(10)])
    assert store.sizes == [4 * MIB, 4 * MIB, 2 * MIB, 9 * MIB, 4 * MIB, 4 * MIB, 2 * MIB]


def test_what_is_reported_in_a_turn_of_the_loop_is_written_and_acknowledged_when_the_turn_has_ended() -> None:
    store, told = Kept(), list[tuple[int, PolicyBridgeError | None]]()
    writing = Writer(store)
    writing.start(lambda call, *arguments: call(*arguments), lambda: None, by_turns=True)
    with closing(writing):
        for turn in range(3):
            for number in range(4):
                writing.put_urgent(Lost(f"s{number}", turn, 1), lambda error, turn=turn: told.append((turn, error)))  # type: ignore[misc]
            writing.end_turn()
            wait_for(lambda: len(told) == 4 * turn + 4)  # noqa: B023 - it is called in this turn
    assert [turn for turn, _ in told] == [0] * 4 + [1] * 4 + [2] * 4
    assert sum(len(records) for records in store.transactions) == 12


def test_a_transaction_is_acknowledged_in_one_call_of_the_loop_and_an_error_there_costs_no_other_client() -> None:
    posted, told = list[tuple[Callable[..., object], tuple[object, ...]]](), list[int]()

    def collect() -> None: ...

    def acknowledge(number: int, _: PolicyBridgeError | None) -> None:
        told.append(number)
        if number == 1:
            raise ValueError(number)

    def post(call: Callable[..., object], *arguments: object) -> None:
        if call is not collect:
            posted.append((call, arguments))

    writing = Writer(Kept())
    writing.start(post, collect, by_turns=True)
    with closing(writing):
        for number in range(4):
            writing.put_urgent(Lost(f"s{number}", 1, 1), partial(acknowledge, number))
        writing.end_turn()
        wait_for(lambda: bool(posted))
        ((call, arguments),) = posted
        call(*arguments)
    assert told == [0, 1, 2, 3]


def test_with_little_room_transactions_become_smaller_until_they_fit_and_the_log_tells_begin_and_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = Kept(room=MIB, tight=20)
    written(store, large(20))
    assert store.sizes == [MIB] * 20
    begin, end = caplog.messages
    assert begin.startswith("the ledger cannot be written; up to 256 MiB of records wait in memory: no space left")
    assert end == "the ledger can be written again; all waiting records are written"
    caplog.clear()
    written(Kept(), large(20))
    assert caplog.messages == []


def test_transactions_have_their_usual_size_again_soon_after_there_is_room() -> None:
    store = Kept(room=100_000, tight=20)
    written(store, large(600, 100_000))
    assert store.sizes[:20] == [100_000] * 20
    assert store.sizes[20:30].count(4_100_000) > 2
    assert max(store.sizes) <= 4 * MIB


def test_the_store_is_pruned_after_each_mebibyte_that_is_written_and_not_after_each_record() -> None:
    store, told = Kept(), list[PolicyBridgeError | None]()
    writing = Writer(store)
    writing.start(lambda call, *arguments: call(*arguments), lambda: None)

    def pruned_while(size: int) -> int:
        before, pruned = len(told), store.pruned
        for number in range(20):
            writing.put_urgent(Lost("s", 1, size), told.append)
            wait_for(lambda: len(told) == before + number + 1)  # noqa: B023 - it is called in this turn
        return store.pruned - pruned

    with closing(writing):
        assert pruned_while(MIB) >= 19
        begun = time.monotonic()
        # The store is pruned every five seconds too, however long that takes on a busy machine.
        assert pruned_while(10) <= 3 + (time.monotonic() - begun) / 5


def test_the_number_of_decisions_that_find_no_room_is_logged_each_time_that_it_is_ten_times_larger(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(writer, "_ROOM", 1500)
    recorder = LedgerRecorder(Kept())
    recording = recorder.opened(SessionView("one", PolicyVersion("network", 1, "sha256:0")))
    recording.bound(SIGNATURE)
    for row in rows(120):
        recording.decided(row.tobytes(), ADVICE, None, 1)
        recorder.hand_over()
    assert recorder.state.lost == 120
    told = [record.args for record in caplog.records if record.levelno == logging.ERROR]
    assert told == [(1,), (10,), (100,)]
    recorder.close()


def test_decisions_with_large_observations_are_written_before_they_are_many() -> None:
    signature = Signature.of([TensorSpec("x", ElementType.UINT8, (100_000,))], SIGNATURE.advice)
    store = Kept()
    recorder = LedgerRecorder(store)
    recording = recorder.opened(SessionView("one", PolicyVersion("p", 1, "sha256:0")))
    recording.bound(signature)
    for _ in range(9):
        recording.decided(bytes(100_000), ADVICE, None, 1)
    assert recorder.state.waiting_bytes > 800_000
    recorder.close()
    segments = [each for records in store.transactions for each in records if isinstance(each, Segment)]
    assert [len(segment.decisions) for segment in segments] == [2, 2, 2, 2, 1]
    assert [segment.first for segment in segments] == [1, 3, 5, 7, 9]

"""LLVM's interactive channel from the compiler's side: `pipe:BASE`, against hosts that the tests write."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from policybridge_core.errors import (
    DeadlineError,
    InvalidError,
    PreconditionError,
    UnavailableError,
    UnsupportedError,
)
from policybridge_serdes import (
    ElementType,
    Exploration,
    Outcome,
    PolicyReference,
    SessionOptions,
    Signature,
    TensorSpec,
)
from policybridge_serdes.interactive import Context, Event, Header, InteractiveReader
from tests.native.clients import Connect, NativeSession, programs
from tests.native.conftest import Target

SIGNATURE = Signature.of(
    [TensorSpec("a", ElementType.INT64), TensorSpec("b", ElementType.FLOAT, (2,))], TensorSpec("sum", ElementType.INT64)
)


class Host:
    """A host that answers a + 1, until it has answered ``answers`` times; then it closes the channel."""

    def __init__(self, base: Path, answers: int) -> None:
        self.events: list[Event] = []
        self._base = base
        self._answers = answers
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with ExitStack() as stack:
            # In the order that LLVM demands: the replies first.
            replies = stack.enter_context(Path(f"{self._base}.in").open("wb", buffering=0))
            observations = stack.enter_context(Path(f"{self._base}.out").open("rb", buffering=0))
            reader = InteractiveReader()
            while self._answers and (data := observations.read(1 << 16)):
                for event in reader.feed(data):
                    self.events.append(event)
                    if isinstance(event, bytes):
                        a = int.from_bytes(event[:8], "little", signed=True)
                        replies.write((a + 1).to_bytes(8, "little", signed=True))
                        self._answers -= 1

    def join(self) -> None:
        self._thread.join(20)
        assert not self._thread.is_alive()


@pytest.fixture
def base(tmp_path: Path) -> Path:
    for end in ("in", "out"):
        os.mkfifo(tmp_path / f"channel.{end}")
    return tmp_path / "channel"


@pytest.fixture(params=["policybridge-cpp-client", "policybridge-c-client"])
def connect(request: pytest.FixtureRequest, native: Target) -> Iterator[Connect]:
    with programs(native(request.param) / "bin" / request.param) as connect:
        yield connect


@pytest.fixture
def host(base: Path) -> Iterator[Callable[..., Host]]:
    hosts: list[Host] = []

    def start(answers: int = -1) -> Host:
        hosts.append(Host(base, answers))
        return hosts[-1]

    yield start
    for each in hosts:
        each.join()


def open_pipe(connect: Connect, base: Path, *settings: str, timeout: float = 10.0, context: str = "") -> NativeSession:
    options = SessionOptions(context)
    return connect(f"pipe:{base}", timeout=timeout).open(PolicyReference("any"), SIGNATURE, options, *settings)


def test_a_host_reads_what_llvm_would_write(connect: Connect, base: Path, host: Callable[..., Host]) -> None:
    running = host()
    session = open_pipe(connect, base, context="main.c")
    session.set(1, np.array([0.5, -2], np.float32))
    for a in (1, -7):
        session.set(0, np.array([a]))
        assert session.decide() == a + 1
    session.context("f")
    assert session.decide() == -6
    session.close()
    running.join()
    packed = [np.int64(a).tobytes() + np.array([0.5, -2], np.float32).tobytes() for a in (1, -7)]
    context, other = Context("main.c"), Context("f")
    assert running.events == [Header(SIGNATURE), context, packed[0], packed[1], other, packed[1]]


@pytest.mark.parametrize("connect", ["policybridge-cpp-client"], indirect=True)
def test_another_kind_of_decision_has_a_header_of_its_own_before_the_next_observation(
    connect: Connect, base: Path, host: Callable[..., Host]
) -> None:
    other = Signature.of([TensorSpec("c", ElementType.INT64)], TensorSpec("kind", ElementType.INT64))
    running = host()
    session = open_pipe(connect, base, context="main.c")
    session.set(0, np.array([1]))
    assert session.decide() == 2
    session.bind(PolicyReference("any"), other)
    session.context("f")
    session.set(0, np.array([7]))
    assert session.decide() == 8
    varying = Signature.of([TensorSpec("c", ElementType.INT64, (-1,))], other.advice)
    with pytest.raises(InvalidError, match="carries tensors of fixed size"):
        session.bind(PolicyReference("any"), varying)
    session.close()
    running.join()
    first = np.int64(1).tobytes() + np.zeros(2, np.float32).tobytes()
    header, context = Header(SIGNATURE), Context("main.c")
    assert running.events == [header, context, first, Header(other), Context("f"), np.int64(7).tobytes()]


def test_a_channel_has_neither_a_version_nor_outcomes(connect: Connect, base: Path, host: Callable[..., Host]) -> None:
    host()
    session = open_pipe(connect, base)
    with pytest.raises(UnsupportedError, match="policy version"):
        _ = session.policy
    with pytest.raises(UnsupportedError, match="outcomes"):
        session.report(Outcome({}, "ok"))
    assert session.decide() == 1
    session.close()


def test_a_host_that_goes_away_is_unavailable_at_once(connect: Connect, base: Path, host: Callable[..., Host]) -> None:
    host(2)
    session = open_pipe(connect, base)
    assert [session.decide(), session.decide()] == [1, 1]
    with pytest.raises(UnavailableError, match=r"went away"):
        session.decide()


def test_a_host_that_goes_away_is_followed_by_the_fallback(
    connect: Connect, base: Path, host: Callable[..., Host]
) -> None:
    host(1)
    session = open_pipe(connect, base, "fallback 5")
    assert [session.decide() for _ in range(3)] == [1, 5, 5]


def test_a_host_that_never_comes_is_unavailable_after_the_timeout(connect: Connect, base: Path) -> None:
    with pytest.raises(UnavailableError, match=r"no host has opened .*channel\.out for reading within 0\.2 s"):
        open_pipe(connect, base, timeout=0.2)


def test_a_host_that_is_silent_meets_the_deadline(connect: Connect, base: Path) -> None:
    ends = [os.open(f"{base}.{end}", os.O_RDWR) for end in ("in", "out")]
    session = open_pipe(connect, base, timeout=0.2)
    with pytest.raises(DeadlineError, match=r"within 0\.2 s"):
        session.decide()
    for end in ends:
        os.close(end)


def test_replies_from_a_recorded_file_are_read_until_its_end(connect: Connect, tmp_path: Path) -> None:
    (tmp_path / "old.in").write_bytes(np.array([3, 4], np.int64).tobytes() + b"\0")
    session = open_pipe(connect, tmp_path / "old")
    assert [session.decide(), session.decide()] == [3, 4]
    with pytest.raises(UnavailableError, match="ends without an answer"):
        session.decide()
    assert (tmp_path / "old.out").read_bytes().count(b'{"observation"') == 3


def test_a_channel_that_is_not_there_is_named(connect: Connect, tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match=r"none\.in: No such file"):
        open_pipe(connect, tmp_path / "none")
    with pytest.raises(UnavailableError, match=r"none\.in: No such file"):
        connect(f"pipe:{tmp_path / 'none'}").check()


def test_one_channel_is_for_one_session_at_a_time(connect: Connect, base: Path, host: Callable[..., Host]) -> None:
    host()
    connection = connect(f"pipe:{base}")
    session = connection.open(PolicyReference("any"), SIGNATURE, SessionOptions())
    with pytest.raises(PreconditionError, match="has a session already"):
        connection.open(PolicyReference("any"), SIGNATURE, SessionOptions())
    assert session.decide() == 1
    session.close()


def test_what_the_channel_cannot_carry_is_refused(connect: Connect, base: Path) -> None:
    connection = connect(f"pipe:{base}")
    varying = Signature.of([TensorSpec("a", ElementType.INT64, (-1,))], SIGNATURE.advice)
    with pytest.raises(InvalidError, match="vary"):
        connection.open(PolicyReference("any"), varying, SessionOptions())
    explored = SessionOptions(exploration=Exploration(1, 1.0))
    with pytest.raises(InvalidError, match="exploration"):
        connection.open(PolicyReference("any"), SIGNATURE, explored)

"""Sessions of the C++ library over gRPC, against a real server."""

import os
import shutil
import socket
import subprocess
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic

import numpy as np
import pytest

from policybridge_serdes import ElementType, Outcome, Signature, TensorSpec, pack
from policybridge_server.ledger.reader import LedgerReader
from tests.client.hostile_peer import WIDE, HostilePeer, hostile
from tests.client.leaving import leaving
from tests.client.policies import write_policies
from tests.conftest import RunningServer, command, running_server
from tests.native.channels import Channel, ChannelError, running_channel
from tests.native.conftest import ROOT, Target, missing, sanitized
from tests.repositories import answering, write_python
from tests.server.backends.backends import SAMPLES
from tests.server.grpc.raw_peer import RST_STREAM, frame, message, word

INT64 = ElementType.INT64
SUM = Signature.of([TensorSpec("a", INT64), TensorSpec("b", INT64)], TensorSpec("sum", INT64))
CHOICE = Signature.of([TensorSpec("x", INT64)], TensorSpec("choice", INT64))
BUILDS: dict[str, tuple[Path | str, ...]] = {
    "plain": (),
    "sanitized": sanitized(),
    "threads": sanitized("thread"),
}
SUPPRESSIONS = ROOT / "clients" / "cpp" / "grpc" / "tests" / "tsan.supp"

Connect = Callable[..., Channel]


@pytest.fixture(scope="session")
def build(native: Target) -> Callable[[str], Path]:
    """Build the program: plain, or with the sanitizers of that name."""
    packages = ("pkg-config", "--exists", "grpc++", "protobuf")
    if shutil.which("grpc_cpp_plugin") is None or subprocess.run(packages, check=False).returncode:
        missing("libgrpc++-dev, libprotobuf-dev or protobuf-compiler-grpc")

    def made(kind: str) -> Path:
        return native("grpc-channel-driver", *BUILDS[kind]) / "bin" / "grpc-channel-driver"

    return made


@pytest.fixture(scope="session", params=["plain", "sanitized"])
def program(request: pytest.FixtureRequest, build: Callable[[str], Path]) -> Path:
    return build(request.param)


@pytest.fixture(scope="session")
def policies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    repository = tmp_path_factory.mktemp("policies")
    write_policies(repository)
    counts = "class Policy:\n    asked = 0\n\n    def evaluate(self, observation, session):\n        self.asked += 1\n"
    write_python(repository, "counts", f"{counts}        return self.asked\n")
    write_python(repository, "same", answering("observation['x']"))
    write_python(repository, "told", answering("f'{session.context} {dict(session.options)} {dict(session.labels)}'"))
    scores = 'advice = {name = "scores", type = "float", shape = [1, 3]}\n[head]\nadvice = "choice"\n'
    write_python(repository, "scores", answering("[[1.0, 3.0, 2.0]]"), scores)
    return repository


class Recording:
    """A server, and the ledger that it writes."""

    def __init__(self, server: RunningServer, ledger: Path) -> None:
        self.server = server
        self.ledger = ledger

    def outcome(self, session_id: str) -> Outcome | None:
        with LedgerReader(self.ledger) as reader:
            return reader.session(session_id).outcome

    def decisions(self, session_id: str) -> int:
        with LedgerReader(self.ledger) as reader:
            return sum(len(batch) for batch in reader.segments(reader.session(session_id)))


@pytest.fixture(scope="module")
def recording(policies: Path) -> Iterator[Recording]:
    with TemporaryDirectory(prefix="pb-") as name:
        ledger = Path(name) / "ledger.db"
        with running_server(policies, Path(name), "--ledger", ledger) as server:
            yield Recording(server, ledger)


@pytest.fixture
def connect(program: Path) -> Iterator[Connect]:
    """Make connections, each in a program of its own: ``connect(address, timeout=…)``."""
    with ExitStack() as stack:
        yield lambda address, **options: stack.enter_context(running_channel(program, address, **options))


@pytest.fixture
def channel(connect: Connect, recording: Recording) -> Channel:
    return connect(recording.server.grpc)


@contextmanager
def serving(repository: Path, address: str) -> Iterator["subprocess.Popen[str]"]:
    """Serve at an address that the test chooses."""
    listen = ["--repository", repository, "--allow-python", "--grpc", address, "--grace", 0.1]
    process = subprocess.Popen(command("serve", *listen), stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        assert process.stdout.readline().startswith("ready ")
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_decision_is_the_policys(channel: Channel) -> None:
    session = channel.open("sum", SUM)
    assert [session.ask(a=2, b=n).value.item() for n in (3, -5, 2**62)] == [5, -3, 2**62 + 2]
    session.close()


def test_a_session_gives_its_id_and_policy_version(channel: Channel) -> None:
    identity, name, version, digest = channel.open("never@1", SUM).told
    assert identity
    assert (name, version) == ("never", "1")
    assert digest.startswith("sha256:")
    assert channel.open("never", SUM).told[2] == "2"


@pytest.mark.parametrize("kind", list(ElementType), ids=lambda kind: kind.name)
def test_values_of_every_type_and_shape_arrive_unchanged(channel: Channel, kind: ElementType) -> None:
    for shape in ((), (1,), (3,), (1, 3), (-1,), (-1, 1)):
        session = channel.open("same", Signature.of([TensorSpec("x", kind, shape)], TensorSpec("y", kind, shape)))
        for count in (3, 0, 1) if -1 in shape else (int(np.prod(shape)),):
            value = np.array(SAMPLES[kind][:count], kind.dtype).reshape(shape)
            assert session.ask(x=value).value.tolist() == value.tolist()
        session.close()


def test_context_options_and_labels_reach_the_policy(channel: Channel) -> None:
    signature = Signature.of([TensorSpec("x", INT64)], TensorSpec("y", ElementType.STRING, ()))
    session = channel.open("told", signature, "opening-context größer", "option o 1", "label l 2")
    assert session.ask(x=0).value.item() == "größer {'o': '1'} {'l': '2'}"
    session.context("before")
    session.context("g")
    assert session.ask(x=0).value.item() == "g {'o': '1'} {'l': '2'}"


def test_the_last_step_sent_again_is_answered_without_evaluating_again(channel: Channel) -> None:
    session = channel.open("counts", SUM)
    first = session.ask(a=0, b=0).value.item()
    assert session.ask_again(a=0, b=0).value.item() == first
    assert session.ask(a=0, b=0).value.item() == first + 1


def test_a_step_out_of_order_ends_the_session(channel: Channel) -> None:
    session = channel.open("sum", SUM)
    with pytest.raises(ChannelError, match="FAILED_PRECONDITION step 3 came; 1 is next"):
        session.ask_step(3, pack(SUM.features, {"a": 1, "b": 1}))
    assert not session.is_open


def test_the_servers_errors_come_with_their_code_and_message(channel: Channel) -> None:
    with pytest.raises(ChannelError, match=r"NOT_FOUND .*nobody"):
        channel.open("nobody", SUM)
    with pytest.raises(ChannelError, match=r"INVALID_ARGUMENT .*explor"):
        channel.open("sum", SUM, "explore 1 1 0")
    with pytest.raises(ChannelError, match=r"INVALID_ARGUMENT .*choice: int64_t\[1\].*choice: float\[1\]"):
        channel.open("scores", Signature(CHOICE.features, TensorSpec("choice", ElementType.FLOAT)))
    with pytest.raises(ChannelError, match="INVALID_ARGUMENT 15 bytes came where the tensors take 16"):
        channel.open("sum", SUM).ask_bytes(1, bytes(15))


def test_after_an_error_the_session_is_over_and_others_are_not(channel: Channel) -> None:
    broken, whole = channel.open("sum", SUM, "option raise_at 2"), channel.open("sum", SUM)
    assert broken.ask(a=1, b=1).value.item() == 2
    with pytest.raises(ChannelError, match=r"INTERNAL .*boom"):
        broken.ask(a=1, b=1)
    assert not broken.is_open
    with pytest.raises(ChannelError, match=r"FAILED_PRECONDITION the session is over: .*boom"):
        broken.ask(a=1, b=1)
    with pytest.raises(ChannelError, match=r"FAILED_PRECONDITION .*boom"):
        broken.context("f")
    broken.close()
    assert whole.ask(a=1, b=1).value.item() == 2


def test_a_large_observation_is_sent_and_a_too_large_one_is_refused(channel: Channel) -> None:
    def wide(size: int) -> Signature:
        return Signature.of([TensorSpec("x", INT64, (size,))], TensorSpec("y", INT64, (size,)))

    session = channel.open("same", wide(1_000_000))
    assert (session.ask(x=np.arange(1_000_000)).value == np.arange(1_000_000)).all()
    with pytest.raises(ChannelError, match="RESOURCE_EXHAUSTED"):
        channel.open("same", wide(100_000_000))


def test_a_session_that_explores_says_how_probable_its_advice_was(channel: Channel) -> None:
    session = channel.open("scores", CHOICE, "explore 7 1 0")
    chances = np.exp([1.0, 3.0, 2.0]) / np.exp([1.0, 3.0, 2.0]).sum()
    for _ in range(20):
        advice = session.ask(x=0)
        assert advice.log_probability == pytest.approx(np.log(chances[advice.value.item()]), rel=1e-4)
    assert channel.open("scores", CHOICE).ask(x=0).log_probability is None


def test_a_session_stays_on_its_version_while_another_is_published(connect: Connect, tmp_path: Path) -> None:
    write_python(tmp_path / "p", "number", answering("1"))
    with serving(tmp_path / "p", f"unix:{tmp_path}/s"):
        channel = connect(f"grpc:unix:{tmp_path}/s")
        session = channel.open("number", SUM)
        assert session.ask(a=0, b=0).value.item() == 1
        write_python(tmp_path / "p", "number", answering("2"), version=2)
        until = monotonic() + 60
        while channel.open("number", SUM).ask(a=0, b=0).value.item() != 2:
            assert monotonic() < until
        assert session.ask(a=0, b=0).value.item() == 1


def test_decisions_that_a_report_or_the_sessions_end_acknowledged_survive_a_kill(
    connect: Connect, policies: Path
) -> None:
    with TemporaryDirectory(prefix="pb-") as name:
        ledger = Path(name) / "ledger.db"
        with running_server(policies, Path(name), "--ledger", ledger) as server:
            channel = connect(server.grpc)
            ended, reported = channel.open("sum", SUM), channel.open("sum", SUM)
            reported.ask(a=1, b=1)
            reported.context("pending")
            reported.report("ok", text=12.5)
            reported.ask(a=1, b=2)
            reported.report("better", cycles=3)
            # After all reports, which would have brought it to disk.
            ended.ask(a=1, b=1)
            ended.close()
            server.kill()
        recording = Recording(server, ledger)
        assert recording.outcome(reported.told[0]) == Outcome({"text": 12.5, "cycles": 3.0}, "better")
        assert [recording.decisions(session.told[0]) for session in (ended, reported)] == [1, 2]


def test_the_outcome_of_a_past_session_may_come_from_another_connection(connect: Connect, recording: Recording) -> None:
    session = connect(recording.server.grpc).open("sum", SUM)
    session.ask(a=1, b=1)
    session.close()
    other = connect(recording.server.grpc)
    other.report_past(session.told[0], "ok", cycles=1e6)
    assert recording.outcome(session.told[0]) == Outcome({"cycles": 1e6}, "ok")
    with pytest.raises(ChannelError, match=r"NOT_FOUND .*elsewhere"):
        other.report_past("elsewhere", "ok")


def test_without_a_ledger_an_outcome_is_refused(connect: Connect, policies: Path, tmp_path: Path) -> None:
    with serving(policies, f"unix:{tmp_path}/s"):
        channel = connect(f"grpc:unix:{tmp_path}/s")
        with pytest.raises(ChannelError, match=r"UNIMPLEMENTED .*--ledger"):
            channel.open("sum", SUM).report("ok")
        with pytest.raises(ChannelError, match=r"UNIMPLEMENTED .*--ledger"):
            channel.report_past("x", "ok")


def test_a_policy_that_hangs_meets_the_deadline_of_its_decision(connect: Connect, recording: Recording) -> None:
    connect(recording.server.grpc).open("sleepy", SUM).ask(a=1, b=1)
    channel = connect(recording.server.grpc, timeout=0.5)
    session = channel.open("sleepy", SUM, "option sleep_at 3")
    assert [session.ask(a=1, b=n).value.item() for n in (1, 2)] == [2, 3]
    begun = monotonic()
    with pytest.raises(ChannelError, match=r"DEADLINE_EXCEEDED .*within 0\.5 s"):
        session.ask(a=1, b=1)
    assert 0.4 < monotonic() - begun < 2
    assert not session.is_open


def test_a_session_may_last_longer_than_the_deadline_of_a_decision(connect: Connect, recording: Recording) -> None:
    session = connect(recording.server.grpc, timeout=2).open("sum", SUM)
    until = monotonic() + 3
    while monotonic() < until:
        assert session.ask(a=1, b=1).value.item() == 2


def test_a_server_that_never_answers_meets_the_deadline(connect: Connect, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        channel = connect(f"grpc:unix:{tmp_path}/s", timeout=0.3)
        begun = monotonic()
        with pytest.raises(ChannelError, match=r"DEADLINE_EXCEEDED|UNAVAILABLE"):
            channel.open("sum", SUM)
        with pytest.raises(ChannelError, match=rf"(DEADLINE_EXCEEDED|UNAVAILABLE) .*{tmp_path}/s"):
            channel.say("check")
        assert monotonic() - begun < 5


def test_a_server_that_dies_is_unavailable_at_once_and_the_next_one_serves(
    connect: Connect, policies: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    channel = connect(f"grpc:unix:{tmp_path}/s")
    for _ in range(2):
        with serving(policies, f"unix:{tmp_path}/s") as process:
            session = channel.open("sum", SUM)
            assert session.ask(a=1, b=1).value.item() == 2
            assert channel.say("check") == []
            process.kill()
            process.wait()
            begun = monotonic()
            with pytest.raises(ChannelError, match=rf"UNAVAILABLE the server at unix:{tmp_path}/s: "):
                session.ask(a=1, b=1)
            with pytest.raises(ChannelError, match="UNAVAILABLE"):
                channel.open("sum", SUM)
            with pytest.raises(ChannelError, match="UNAVAILABLE"):
                channel.say("check")
            assert monotonic() - begun < 5
        (tmp_path / "s").unlink(missing_ok=True)
    assert capfd.readouterr().err == ""


def test_a_server_that_stops_ends_the_session_as_unavailable(connect: Connect, policies: Path, tmp_path: Path) -> None:
    with serving(policies, f"unix:{tmp_path}/s") as process:
        session = connect(f"grpc:unix:{tmp_path}/s").open("sum", SUM)
        session.ask(a=1, b=1)
        process.terminate()
        process.wait(60)
        with pytest.raises(ChannelError, match="UNAVAILABLE"):
            session.ask(a=1, b=1)


def test_a_server_that_leaves_as_a_session_is_opened_is_unavailable(connect: Connect) -> None:
    with leaving() as port, pytest.raises(ChannelError, match="UNAVAILABLE"):
        connect(f"grpc:127.0.0.1:{port}").open("sum", SUM)


@pytest.mark.parametrize("servers", [1, 3])
def test_a_session_that_leaving_servers_refused_is_opened_at_their_successor(
    connect: Connect, recording: Recording, servers: int
) -> None:
    with leaving(int(recording.server.grpc.rpartition(":")[2]), servers) as port:
        assert connect(f"grpc:127.0.0.1:{port}").open("sum", SUM).ask(a=1, b=1).value.item() == 2


def test_a_call_that_leaving_servers_refused_is_made_at_their_successor(
    channel: Channel, connect: Connect, recording: Recording
) -> None:
    session = channel.open("sum", SUM)
    session.close()
    successor = int(recording.server.grpc.rpartition(":")[2])
    with leaving(successor, 3) as port:
        connect(f"grpc:127.0.0.1:{port}").say("check")
    with leaving(successor, 3) as port:
        connect(f"grpc:127.0.0.1:{port}").report_past(session.told[0], "ok", size=3)
    assert recording.outcome(session.told[0]) == Outcome({"size": 3.0}, "ok")


@pytest.mark.timeout(120)
@pytest.mark.parametrize("asks", [lambda channel: channel.open("sum", SUM), lambda channel: channel.say("check")])
def test_what_is_refused_late_and_asked_again_has_one_time_out_for_both(
    build: Callable[[str], Path], asks: Callable[[Channel], object]
) -> None:
    def serve(peer: HostilePeer) -> None:
        peer.await_call()
        peer.await_message()
        threading.Event().wait(9)
        peer.send(frame(RST_STREAM, 0, peer.call, word(7)))
        peer.await_end()

    begun = monotonic()
    with hostile(serve) as address, running_channel(build("plain"), address, timeout=10) as channel:
        with pytest.raises(ChannelError, match="DEADLINE_EXCEEDED"):
            asks(channel)
        # With a time-out of its own for the second one it would be 19 s.
        assert monotonic() - begun < 17


def test_a_packed_answer_is_refused_and_not_unpacked(build: Callable[[str], Path]) -> None:
    packed = message(_packed_zeros(1 << 29), packed=True)

    def serve(peer: HostilePeer) -> None:
        while True:
            peer.await_call()
            peer.await_message()
            peer.tell(("grpc-encoding", "gzip"))
            peer.data(packed)

    with hostile(serve, WIDE) as address, running_channel(build("plain"), address, timeout=60) as channel:
        for ask in (lambda: channel.open("sum", SUM), lambda: channel.report_past("s", "ok")):
            with pytest.raises(ChannelError) as raised:
                ask()
            assert raised.value.code not in ("DEADLINE_EXCEEDED", "UNAVAILABLE")
        assert channel.peak_memory() < 1 << 28


def _packed_zeros(size: int) -> bytes:
    packer = zlib.compressobj(wbits=31)
    return b"".join(packer.compress(bytes(1 << 20)) for _ in range(size >> 20)) + packer.flush()


def test_no_server_is_unavailable_and_the_message_names_the_address(connect: Connect) -> None:
    for target in ("127.0.0.1:1", "unix:/nowhere/s"):
        channel = connect(f"grpc:{target}")
        with pytest.raises(ChannelError, match=f"UNAVAILABLE .*{target}"):
            channel.open("sum", SUM)
        with pytest.raises(ChannelError, match=f"UNAVAILABLE .*{target}"):
            channel.say("check")
        with pytest.raises(ChannelError, match=f"UNAVAILABLE .*{target}"):
            channel.report_past("x", "ok")


def test_sessions_outlive_their_connection(channel: Channel) -> None:
    session = channel.open("sum", SUM)
    channel.say("disconnect")
    assert session.ask(a=1, b=2).value.item() == 3
    session.close()
    session.close()


@pytest.mark.parametrize("kind", list(BUILDS))
def test_threads_share_a_connection(build: Callable[[str], Path], recording: Recording, kind: str) -> None:
    environment = {**os.environ, "TSAN_OPTIONS": f"suppressions={SUPPRESSIONS}"}
    with running_channel(build(kind), recording.server.grpc, environment=environment) as channel:
        assert channel.many(8, 50, "sum", SUM, a=1, b=2) == [(3).to_bytes(8, "little").hex()]

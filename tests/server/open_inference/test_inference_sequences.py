"""Sequences of inference requests: sessions, over ModelStreamInfer and over ModelInfer."""

import queue
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton  # type: ignore[import-untyped]
from tritonclient.utils import InferenceServerException  # type: ignore[import-untyped]

from policybridge_client.connection import connect
from policybridge_serdes import Outcome
from policybridge_server.ledger.query import Query
from policybridge_server.ledger.reader import LedgerReader
from tests.conftest import RunningServer, running_server
from tests.repositories import answering, write_python
from tests.server.open_inference.inference_policies import declaring, tensor, write_policies, x
from tests.server.publishing.policies import client as publisher
from tests.server.publishing.policies import wait_for, write_adder, write_policy


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with TemporaryDirectory(prefix="pb-") as name:
        yield Path(name)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, folder: Path) -> Iterator[RunningServer]:
    repository = tmp_path_factory.mktemp("repository")
    write_policies(repository)
    write_policy(repository)
    with running_server(repository, folder, "--ledger", folder / "ledger.db", "--allow-publish") as running:
        yield running


@pytest.fixture
def client(server: RunningServer) -> Iterator[triton.InferenceServerClient]:
    with triton.InferenceServerClient(server.grpc.removeprefix("grpc:")) as made:
        yield made


class Stream:
    """A stream whose answers are waited for."""

    def __init__(self, client: triton.InferenceServerClient) -> None:
        self._client = client
        self._answers: queue.SimpleQueue[tuple[Any, Any]] = queue.SimpleQueue()
        client.start_stream(lambda result, error: self._answers.put((result, error)))

    def send(self, sequence: int | str, value: int = 0, name: str = "counts", **given: Any) -> None:
        self._client.async_stream_infer(name, x(value), sequence_id=sequence, **given)

    def answer(self) -> list[int]:
        result, error = self._answers.get(timeout=60)
        if error is not None:
            raise error
        answer: list[int] = result.as_numpy("y").tolist()
        return answer

    def ask(self, sequence: int | str, value: int = 0, **given: Any) -> list[int]:
        self.send(sequence, value, **given)
        return self.answer()


@pytest.fixture
def stream(client: triton.InferenceServerClient) -> Iterator[Stream]:
    yield Stream(client)
    client.stop_stream()


def test_a_sequence_is_one_session_of_a_policy_with_a_memory(stream: Stream) -> None:
    assert stream.ask(1, 10, sequence_start=True) == [1, 10, 1]
    assert stream.ask(1, 20) == [2, 20, 1]
    assert stream.ask(1, 30, sequence_end=True) == [3, 30, 1]
    assert stream.ask(1, 40, sequence_start=True, sequence_end=True) == [1, 40, 1]


def test_sequences_of_one_stream_do_not_mix_and_answers_come_in_order(stream: Stream) -> None:
    for step in range(20):
        for sequence in ("a", "b", 3):
            stream.send(sequence, step, sequence_start=step == 0, sequence_end=step == 19)
    for step in range(20):
        for _ in range(3):
            assert stream.answer() == [step + 1, step, 1]


def test_an_error_is_an_answer_and_the_stream_stays_open(stream: Stream) -> None:
    with pytest.raises(InferenceServerException, match="no sequence 77 of 'counts' is live: the first request"):
        stream.ask(77)
    with pytest.raises(InferenceServerException, match="no policy 'nothing'"):
        stream.ask(0, name="nothing")
    assert stream.ask(0, 5) == [1, 5, 1]


def test_a_request_without_a_sequence_is_answered_in_the_stream_too(stream: Stream) -> None:
    assert [stream.ask(0, value)[:2] for value in (1, 2)] == [[1, 1], [1, 2]]


def test_a_bad_request_leaves_the_sequence_and_a_policy_that_fails_ends_it(stream: Stream) -> None:
    stream.ask(8, 1, sequence_start=True)
    with pytest.raises(InferenceServerException, match="on version 1, not 9"):
        stream.ask(8, 1, model_version="9")
    assert stream.ask(8, 2) == [2, 2, 1]
    with pytest.raises(InferenceServerException, match="x is negative"):
        stream.ask(8, -1)
    with pytest.raises(InferenceServerException, match="no sequence 8"):
        stream.ask(8, 1)


def test_a_start_under_a_live_id_begins_anew_and_ends_what_was_there(stream: Stream, server: RunningServer) -> None:
    with publisher(server) as watching:
        stream.ask(9, 1, sequence_start=True)
        sessions = watching.repository.show("counts").versions[0].sessions
        assert stream.ask(9, 2) == [2, 2, 1]
        assert stream.ask(9, 3, sequence_start=True) == [1, 3, 1]
        assert watching.repository.show("counts").versions[0].sessions == sessions


def test_a_start_that_overtakes_a_slow_one_leaves_no_session_behind(tmp_path: Path, folder: Path) -> None:
    (folder / "slow").mkdir()
    write_policies(tmp_path)
    # Versions that no alias names are loaded when they are asked for, and this one takes its time.
    source = "import time\ntime.sleep(0.5)\n" + answering("session.policy.version")
    toml = declaring("int64_t [1]", "int64_t [1]")
    write_python(tmp_path, "slow", source, toml, version=1)
    write_python(tmp_path, "slow", answering("session.policy.version"), toml, version=2)
    with (
        running_server(tmp_path, folder / "slow") as server,
        triton.InferenceServerClient(server.grpc.removeprefix("grpc:")) as client,
        publisher(server) as watching,
    ):
        stream = Stream(client)
        stream.send(1, name="slow", model_version="1", sequence_start=True)
        stream.send(1, name="slow", sequence_start=True)
        with pytest.raises(InferenceServerException, match="no sequence 1"):
            stream.answer()
        assert stream.answer() == [2]
        client.stop_stream()
        assert [version.sessions for version in watching.repository.show("slow").versions] == [1, 0]


def test_a_sequence_goes_over_unary_calls_as_well(client: triton.InferenceServerClient, stream: Stream) -> None:
    def ask(value: int, **given: Any) -> list[int]:
        answer: list[int] = client.infer("counts", x(value), sequence_id="u", **given).as_numpy("y").tolist()
        return answer

    assert ask(1, sequence_start=True) == [1, 1, 1]
    assert ask(2) == [2, 2, 1]
    assert stream.ask("u", 3) == [3, 3, 1]
    assert ask(4, sequence_end=True) == [4, 4, 1]
    with pytest.raises(InferenceServerException, match="no sequence u") as failure:
        ask(5)
    assert failure.value.status() == "StatusCode.FAILED_PRECONDITION"


def test_a_sequence_takes_one_observation_at_a_time(client: triton.InferenceServerClient) -> None:
    batch = [tensor("x", np.zeros((2, 1), np.int64))]
    with pytest.raises(InferenceServerException, match="a batch of 2 observations; a sequence takes one at a time"):
        client.infer("counts", batch, sequence_id=5, sequence_start=True)


def test_a_parameter_tells_the_policy_what_is_compiled(client: triton.InferenceServerClient) -> None:
    def ask(**given: Any) -> int:
        return int(client.infer("context", x(0), sequence_id=6, **given).as_numpy("y").item())

    assert ask(sequence_start=True, parameters={"context": "main"}) == 4
    assert ask() == 4
    assert ask(parameters={"context": "a longer one"}) == 12


def test_a_sequence_stays_on_its_version_when_another_is_published(
    client: triton.InferenceServerClient, server: RunningServer, tmp_path: Path
) -> None:
    def ask(**given: Any) -> tuple[int, str]:
        result = client.infer("adder", x(7), **given)
        return int(result.as_numpy("advice").item()), result.get_response().model_version

    assert ask(sequence_id=4, sequence_start=True) == (107, "1")
    with publisher(server) as publishing:
        publishing.repository.publish("adder", write_adder(tmp_path / "new", 200))
    assert ask(sequence_id=4) == (107, "1")
    assert ask() == (207, "2")
    assert ask(sequence_id=4, sequence_end=True) == (107, "1")


def test_the_ledger_holds_a_sequence_when_its_end_is_answered(
    client: triton.InferenceServerClient, server: RunningServer, folder: Path
) -> None:
    for step in range(3):
        reply = client.infer(
            "counts", x(step), sequence_id="kept", sequence_start=step == 0, sequence_end=step == 2
        ).get_response()
    session = reply.parameters["session_id"].string_param
    with LedgerReader(folder / "ledger.db") as reader:
        assert reader.session(session).closed is not None
    connect(server.grpc, timeout=60).report_outcome(session, Outcome({"text": 12.0}))
    with LedgerReader(folder / "ledger.db") as reader:
        (batch,) = reader.trajectory(reader.session(session)).batches
    (record,) = batch.sessions
    assert dict(record.labels) == {"sequence_id": "kept"}
    assert record.outcome is not None
    assert record.outcome.values == {"text": 12.0}
    assert batch.advices["y"].tolist() == [[1, 0, 1], [2, 1, 1], [3, 2, 1]]


def test_requests_without_a_sequence_are_not_recorded(client: triton.InferenceServerClient, folder: Path) -> None:
    client.infer("versions", x(1))
    client.infer("counts", x(1), sequence_id="after", sequence_start=True, sequence_end=True)
    with LedgerReader(folder / "ledger.db") as reader:
        assert list(reader.sessions(Query(policy="versions"))) == []
        assert list(reader.sessions(Query(policy="counts")))


def test_a_server_that_drains_is_not_ready_and_lets_streams_end_their_sequences(tmp_path: Path, folder: Path) -> None:
    (folder / "drain").mkdir()
    write_policies(tmp_path)
    with (
        running_server(tmp_path, folder / "drain") as server,
        triton.InferenceServerClient(server.grpc.removeprefix("grpc:")) as client,
    ):
        stream = Stream(client)
        stream.ask(1, 5, sequence_start=True)
        server.process.terminate()
        wait_for(lambda: not client.is_server_ready())
        assert client.is_server_live()
        assert not client.is_model_ready("counts")
        with pytest.raises(InferenceServerException, match="shutting down") as failure:
            client.infer("counts", x(1))
        assert failure.value.status() == "StatusCode.UNAVAILABLE"
        with pytest.raises(InferenceServerException, match="shutting down"):
            stream.ask(2, 5, sequence_start=True)
        assert stream.ask(1, 6, sequence_end=True) == [2, 6, 1]
        client.stop_stream()
        assert server.process.wait(60) == 0


def test_a_sequence_that_nobody_asks_ends_by_itself(tmp_path: Path, folder: Path) -> None:
    (folder / "idle").mkdir()
    write_policies(tmp_path)
    with (
        running_server(tmp_path, folder / "idle", "--sequence-idle", 0.2) as server,
        triton.InferenceServerClient(server.grpc.removeprefix("grpc:")) as client,
        publisher(server) as watching,
    ):
        client.infer("counts", x(1), sequence_id=1, sequence_start=True)
        wait_for(lambda: watching.repository.show("counts").versions[0].sessions == 0)
        with pytest.raises(InferenceServerException, match="no sequence 1"):
            client.infer("counts", x(1), sequence_id=1)


def test_a_sequence_beyond_the_limit_begins_when_another_has_ended(tmp_path: Path, folder: Path) -> None:
    (folder / "most").mkdir()
    write_policies(tmp_path)
    limits = ("--max-sessions", 20_000, "--max-client-sessions", 20_000)
    with (
        running_server(tmp_path, folder / "most", *limits) as server,
        triton.InferenceServerClient(server.grpc.removeprefix("grpc:")) as client,
    ):
        stream = Stream(client)
        for first in range(1, 10_001, 500):
            # More that wait for answers at a time could look like a flood of the frames that acknowledge these.
            for number in range(first, first + 500):
                stream.send(number, sequence_start=True)
            assert {tuple(stream.answer()) for _ in range(500)} == {(1, 0, 1)}
        with pytest.raises(InferenceServerException, match="10000 sequences are live; end some"):
            client.infer("counts", x(0), sequence_id=10_001, sequence_start=True)
        client.infer("counts", x(0), sequence_id=1, sequence_end=True)
        client.infer("counts", x(0), sequence_id=10_001, sequence_start=True)
        client.stop_stream()

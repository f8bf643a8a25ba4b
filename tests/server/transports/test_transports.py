"""The transport contract: one suite, which every way to the server passes, through the Python client."""

import itertools
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pytest

from policybridge_bench.network import SIGNATURE, observations, write_network
from policybridge_client.connection import connect
from policybridge_client.contract import ClientSession, Connection
from policybridge_core.errors import (
    DeadlineError,
    InvalidError,
    NotFoundError,
    PolicyBridgeError,
    PolicyFailedError,
    PreconditionError,
    UnavailableError,
)
from policybridge_serdes import (
    ElementType,
    Exploration,
    PolicyReference,
    SessionOptions,
    Signature,
    TensorSpec,
    pack,
    tensor,
)
from tests.conftest import RunningServer, running_server
from tests.repositories import answering, write_python

ECHO = Signature.of([TensorSpec("x", ElementType.INT64)], TensorSpec("advice", ElementType.INT64))
SAMPLES: dict[ElementType, list[Any]] = {
    ElementType.BOOL: [True, False],
    ElementType.BYTES: [b"", b"\0\xff"],
    ElementType.STRING: ["", "größer"],
    ElementType.FLOAT: [np.float32(0.1), np.float32(-np.inf)],
    ElementType.DOUBLE: [0.1, 5e-324],
    **{kind: [np.iinfo(kind.dtype).min, np.iinfo(kind.dtype).max] for kind in ElementType if kind.dtype.kind in "iu"},
}


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("repository")
    write_network(folder, "network")
    write_python(folder, "echo", answering("observation['x']"))
    write_python(folder, "raises", answering("1 // 0"))
    write_python(folder, "none", answering("None"))
    write_python(folder, "nan", answering("float('nan')"))
    write_python(folder, "wide", answering("[1, 2, 3]"))
    write_python(folder, "typed", answering("1"), 'features = [{name = "x", type = "int32_t", shape = [2]}]')
    takes_z = 'features = [{name = "z", type = "int64_t", shape = [1]}]\n'
    write_python(folder, "needs", answering("observation['z']"), takes_z)
    write_python(folder, "filled", answering("observation['z']"), takes_z + "[fill]\nz = 7")
    write_python(folder, "renamed", answering("observation['z']"), takes_z + '[rename]\nz = "x"')
    scores = 'advice = {name = "scores", type = "float", shape = [1, 3]}\n[head]\nadvice = "choice"\n'
    write_python(folder, "scores", answering("[[1.0, 3.0, 2.0]]"), scores)
    write_python(folder, "masked", answering("[[1.0, 3.0, 2.0]]"), scores + 'mask = "mask"')
    write_python(folder, "chances", answering("[[0.5, 0.0, 0.5]]"), scores + 'scores = "probabilities"')
    write_python(folder, "broken", "this is no Python")
    write_python(folder, "waits", "import threading\n\n" + answering("threading.Event().wait(5) or 1"))
    return folder


def serving(repository: Path, folder: Path, *arguments: object) -> AbstractContextManager[RunningServer]:
    """Serve in all ways that there are."""
    return running_server(
        repository, folder, "--grpc", f"unix:{folder}/grpc.sock", "--grpcio", "127.0.0.1:0", *arguments
    )


@pytest.fixture(scope="module")
def server(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with serving(repository, tmp_path_factory.mktemp("s")) as running:
        yield running


class Client:
    """A connection with shorthands."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def open(self, policy: str, signature: Signature = ECHO) -> ClientSession:
        return self.connection.open(PolicyReference.parse(policy), signature, SessionOptions())

    def ask(self, policy: str, value: object = 1, signature: Signature = ECHO) -> npt.NDArray[Any]:
        """Open a session, ask once, close it."""
        session = self.open(policy, signature)
        try:
            return self.ask_in(session, value, signature)
        finally:
            session.close()

    def ask_in(self, session: ClientSession, value: object, signature: Signature = ECHO) -> npt.NDArray[Any]:
        (spec,) = signature.features.specs
        return tensor(signature.advice, session.evaluate(pack(signature.features, {spec.name: value})))  # type: ignore[dict-item]


class TransportContract:
    """What a client may expect, whatever lies between it and the engine."""

    timeout: ClassVar[float] = 20.0

    @pytest.fixture
    def client(self) -> Iterator[Client]:
        raise NotImplementedError

    @pytest.mark.parametrize("shape", [(), (1,), (2,), (1, 2), (-1,), (-1, 2)])
    @pytest.mark.parametrize("kind", list(ElementType), ids=lambda kind: kind.value)
    def test_values_of_every_type_and_shape_come_back_as_they_went(
        self, client: Client, kind: ElementType, shape: tuple[int, ...]
    ) -> None:
        signature = Signature.of([TensorSpec("x", kind, shape)], TensorSpec("advice", kind, shape))
        samples = np.array(SAMPLES[kind], kind.dtype)
        value = samples[: signature.advice.count] if -1 not in shape else samples
        value = value.reshape(shape)
        given = client.ask("echo", value, signature)
        assert given.dtype == value.dtype
        assert given.tolist() == value.tolist()

    def test_an_unknown_policy_is_not_found_and_the_known_ones_are_listed(self, client: Client) -> None:
        with pytest.raises(NotFoundError, match="no policy 'nobody'; there are broken, chances, echo"):
            client.ask("nobody")

    def test_an_unknown_version_or_alias_is_not_found(self, client: Client) -> None:
        with pytest.raises(NotFoundError, match="no version 9 of policy 'echo'; there are 1"):
            client.ask("echo@9")
        with pytest.raises(NotFoundError, match="no alias 'best'; there are latest"):
            client.ask("echo@best")

    def test_an_artifact_that_cannot_be_loaded_says_which_file(self, client: Client) -> None:
        with pytest.raises(PreconditionError, match=r"broken@1 cannot be loaded: .*policy\.py"):
            client.ask("broken")

    @pytest.mark.parametrize(
        ("policy", "message"),
        [
            ("typed", r"typed@1 takes x: int32_t\[2\]; the client sends x: int64_t\[1\]"),
            ("needs", r"needs@1 needs z: int64_t\[1\], which the client does not send; it sends x"),
        ],
    )
    def test_a_signature_that_does_not_fit_is_refused_with_both_specs(
        self, client: Client, policy: str, message: str
    ) -> None:
        with pytest.raises(InvalidError, match=message):
            client.ask(policy)

    def test_an_advice_that_the_client_cannot_read_is_refused_with_both_specs(self, client: Client) -> None:
        asked = Signature.of(SIGNATURE.features.specs, TensorSpec("mine", ElementType.FLOAT))
        with pytest.raises(InvalidError, match=r"inlining_decision: int64_t\[1\]; the client takes mine: float\[1\]"):
            client.open("network", asked).evaluate(np.zeros(1, asked.features.dtype))

    def test_missing_inputs_may_be_filled_and_others_renamed(self, client: Client) -> None:
        assert client.ask("filled", 1).item() == 7
        assert client.ask("renamed", 5).item() == 5

    @pytest.mark.parametrize(
        ("policy", "message"),
        [
            ("raises", "the policy failed: ZeroDivisionError: integer division or modulo by zero"),
            ("none", r"evaluate returned None; it must return advice: int64_t\[1\]"),
            ("nan", r"advice: int64_t\[1\] was given float64 values"),
            ("wide", r"advice: int64_t\[1\] was given a value of shape \[3\]"),
        ],
    )
    def test_a_failing_policy_ends_its_session_with_the_reason_and_no_other(
        self, client: Client, policy: str, message: str
    ) -> None:
        bystander, failing = client.open("echo"), client.open(policy)
        with pytest.raises(PolicyFailedError, match=message):
            client.ask_in(failing, 1)
        with pytest.raises(PolicyBridgeError):
            client.ask_in(failing, 1)
        assert client.ask_in(bystander, 3).item() == 3
        failing.close()
        bystander.close()

    def test_nan_is_never_advice(self, client: Client) -> None:
        signature = Signature.of(ECHO.features.specs, TensorSpec("advice", ElementType.FLOAT))
        with pytest.raises(PolicyFailedError, match=r"the policy gave NaN for advice: float\[1\]"):
            client.ask("nan", 1, signature)

    def explore(
        self, client: Client, policy: str, exploration: Exploration | None, mask: tuple[int, ...] = (1, 1, 1)
    ) -> list[tuple[int, float | None]]:
        """Ask 200 times in one session; give the choices and their log-probabilities."""
        signature = Signature.of([TensorSpec("mask", ElementType.INT64, (3,))], TensorSpec("choice", ElementType.INT64))
        session = client.connection.open(PolicyReference(policy), signature, SessionOptions(exploration=exploration))
        asked = pack(signature.features, {"mask": np.array(mask, np.int64)})
        made = [(int(session.evaluate(asked)["choice"].item()), session.log_probability) for _ in range(200)]
        session.close()
        return made

    def test_a_head_gives_the_best_legal_choice_unless_the_session_explores(self, client: Client) -> None:
        assert set(self.explore(client, "scores", None)) == {(1, None)}
        assert set(self.explore(client, "masked", None, (1, 0, 1))) == {(2, None)}

    def test_a_session_that_explores_draws_by_its_temperature_and_says_how_probable_it_was(
        self, client: Client
    ) -> None:
        made = self.explore(client, "scores", Exploration(seed=7, temperature=1.0))
        weights = np.exp([1.0, 3.0, 2.0])
        expected = np.log(weights / weights.sum())
        for choice, chance in made:
            assert chance == pytest.approx(expected[choice], rel=1e-6)
        shares = np.bincount([choice for choice, _ in made], minlength=3) / len(made)
        assert shares == pytest.approx(np.exp(expected), abs=0.12)

    def test_the_seed_fixes_what_a_session_draws(self, client: Client) -> None:
        first = self.explore(client, "scores", Exploration(seed=1, temperature=2.0))
        assert self.explore(client, "scores", Exploration(seed=1, temperature=2.0)) == first
        assert self.explore(client, "scores", Exploration(seed=2, temperature=2.0)) != first

    def test_epsilon_draws_any_legal_choice_and_never_an_illegal_one(self, client: Client) -> None:
        made = self.explore(client, "masked", Exploration(epsilon=0.5), (1, 0, 1))
        assert {choice for choice, _ in made} == {0, 2}
        assert dict(made)[2] == pytest.approx(np.log(0.75))
        assert dict(made)[0] == pytest.approx(np.log(0.25))

    def test_probabilities_are_drawn_as_they_are(self, client: Client) -> None:
        made = self.explore(client, "chances", Exploration(temperature=1.0))
        assert {choice for choice, _ in made} == {0, 2}
        assert [chance for _, chance in made] == pytest.approx([np.log(0.5)] * len(made))

    def test_a_mask_that_allows_nothing_is_the_policys_failure(self, client: Client) -> None:
        with pytest.raises(PolicyFailedError, match="the mask 'mask' allows no choice at all"):
            self.explore(client, "masked", None, (0, 0, 0))

    def test_a_mask_that_is_not_sent_is_refused_with_what_is(self, client: Client) -> None:
        with pytest.raises(InvalidError, match="the legality mask 'mask' needs 3 elements; the client sends none"):
            client.ask("masked")

    def test_a_policy_without_a_head_cannot_explore(self, client: Client) -> None:
        with pytest.raises(InvalidError, match=r"echo@1 has no advice head"):
            self.explore(client, "echo", Exploration(temperature=1.0))

    def test_thirty_two_sessions_at_once_get_the_answers_that_each_would_get_alone(self, client: Client) -> None:
        rows = observations(32 * 50).reshape(32, 50, 38)
        alone = self._answers(client, np.concatenate(list(rows)), threading.Barrier(1))
        together = threading.Barrier(32)
        with ThreadPoolExecutor(32) as pool:
            answers = list(pool.map(lambda own: self._answers(client, own, together), rows))
        assert np.concatenate(answers).tolist() == alone
        assert len(set(alone)) == 2

    def _answers(self, client: Client, rows: npt.NDArray[np.int64], barrier: threading.Barrier) -> list[int]:
        session = client.open("network", SIGNATURE)
        barrier.wait(60)
        records = [np.ndarray(1, SIGNATURE.features.dtype, row.tobytes()) for row in rows]
        answers = [int(session.evaluate(record)["inlining_decision"].item()) for record in records]
        session.close()
        return answers

    def test_sessions_have_ids_of_their_own_and_name_their_exact_version(self, client: Client) -> None:
        first, second = client.open("echo"), client.open("echo")
        assert first.id != second.id
        assert first.policy == second.policy
        assert (first.policy.name, first.policy.version) == ("echo", 1)
        assert first.policy.digest.startswith("sha256:")
        first.close()
        second.close()


class TestInProcess(TransportContract):
    @pytest.fixture
    def client(self, repository: Path) -> Iterator[Client]:
        connection = connect(f"inprocess:{repository}", timeout=self.timeout)
        yield Client(connection)
        connection.close()


class ServedContract(TransportContract):
    """What a client may expect of a server that may go away."""

    @staticmethod
    def address(server: RunningServer) -> str:
        """Say which of the server's addresses this way uses."""
        raise NotImplementedError

    @pytest.fixture
    def client(self, server: RunningServer) -> Iterator[Client]:
        connection = connect(self.address(server), timeout=self.timeout)
        yield Client(connection)
        connection.close()

    def test_a_policy_that_takes_too_long_is_a_deadline_error_and_holds_up_nobody_else(
        self, server: RunningServer, client: Client
    ) -> None:
        impatient = Client(connect(self.address(server), timeout=0.5))
        with pytest.raises(DeadlineError):
            impatient.ask("waits")
        assert client.ask("echo", 9).item() == 9
        impatient.connection.close()

    def test_a_server_that_is_killed_is_unavailable(self, repository: Path, tmp_path: Path) -> None:
        with serving(repository, tmp_path) as server:
            client = Client(connect(self.address(server), timeout=self.timeout))
            session = client.open("echo")
            assert client.ask_in(session, 1).item() == 1
            server.kill()
            with pytest.raises(UnavailableError):
                client.ask_in(session, 1)
            with pytest.raises(UnavailableError):
                client.ask("echo")
            with pytest.raises(UnavailableError):
                client.connection.check()
            client.connection.close()

    def test_sigterm_lets_running_sessions_end_and_opens_no_new_one(self, repository: Path, tmp_path: Path) -> None:
        with serving(repository, tmp_path) as server:
            client = Client(connect(self.address(server), timeout=self.timeout))
            session = client.open("echo")
            server.process.send_signal(signal.SIGTERM)
            with pytest.raises(UnavailableError):
                all(client.ask("echo").item() for _ in itertools.count())
            assert client.ask_in(session, 5).item() == 5
            assert server.process.poll() is None
            session.close()
            assert server.process.wait(60) == 0
            client.connection.close()

    def test_after_the_grace_time_running_sessions_are_ended(self, repository: Path, tmp_path: Path) -> None:
        with serving(repository, tmp_path, "--grace", "0.2") as server:
            client = Client(connect(self.address(server), timeout=self.timeout))
            session = client.open("echo")
            server.process.send_signal(signal.SIGTERM)
            assert server.process.wait(60) == 0
            with pytest.raises(UnavailableError):
                client.ask_in(session, 5)
            client.connection.close()


class TestSocket(ServedContract):
    @staticmethod
    def address(server: RunningServer) -> str:
        return server.socket


class TestGrpc(ServedContract):
    @staticmethod
    def address(server: RunningServer) -> str:
        return server.grpc


class TestGrpcOverAUnixSocket(ServedContract):
    @staticmethod
    def address(server: RunningServer) -> str:
        return server.others[0]


class TestGrpcio(ServedContract):
    @staticmethod
    def address(server: RunningServer) -> str:
        return server.others[1]

"""The C++ library and the C ABI: the conformance suite of Python's connections, and the native model runner."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import numpy as np
import pytest

from policybridge_core.errors import (
    InvalidError,
    NotFoundError,
    PolicyFailedError,
    PreconditionError,
    TooLargeError,
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
    pack,
    unpack,
)
from policybridge_server.ledger.reader import LedgerReader
from tests.client import test_connections as contract
from tests.client.policies import write_policies
from tests.conftest import RunningServer, ServerFactory, running_server
from tests.native.clients import Connect, NativeConnection, NativeSession, programs
from tests.native.conftest import Target, configured, missing, sanitized
from tests.repositories import answering, write_python


@dataclass(frozen=True)
class Kind:
    """A conformance program, and the transport that it uses."""

    target: str
    transport: str
    sanitized: bool = False

    def program(self, native: Target) -> Path:
        """Build it."""
        if self.transport == "grpc" and f" {self.target}:" not in (configured() / "build.ninja").read_text():
            missing("libgrpc++-dev, libprotobuf-dev or protobuf-compiler-grpc")
        where = sanitized() if self.sanitized else ()
        return native(self.target, *where) / "bin" / self.target

    def address(self, running: RunningServer) -> str:
        """Give the address of the server for its transport."""
        return running.socket if self.transport == "socket" else running.grpc


KINDS = {
    "cpp-socket": Kind("policybridge-cpp-client", "socket"),
    "cpp-socket-sanitized": Kind("policybridge-cpp-client", "socket", sanitized=True),
    "c-socket-sanitized": Kind("policybridge-c-client", "socket", sanitized=True),
    "cpp-grpc": Kind("policybridge-cpp-grpc-client", "grpc"),
    "c-grpc": Kind("policybridge-c-grpc-client", "grpc"),
}

OF_CPP = pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.startswith("cpp-")], indirect=True)
"""For tests of features that the C ABI lacks."""

SAMPLES: dict[ElementType, list[Any]] = {
    ElementType.BOOL: [True, False],
    ElementType.BYTES: [b"", b"\0\xff"],
    ElementType.STRING: ["", "größer"],
    ElementType.FLOAT: [np.float32(0.1), np.float32(-np.inf)],
    ElementType.DOUBLE: [0.1, 5e-324],
    **{kind: [np.iinfo(kind.dtype).min, np.iinfo(kind.dtype).max] for kind in ElementType if kind.dtype.kind in "iu"},
}
SHAPES: tuple[tuple[int, ...], ...] = ((), (1,), (2,), (1, 2), (-1,), (-1, 2), (-1, -1), (0,))
SUM = contract.SUM
TWO_KINDS = """
class Policy:
    def evaluate(self, observation, session):
        return observation["x"]

    def pass_choice(self, observation, session):
        return int(observation["x"].sum()) * 100 + len(session.context)
"""
INLINING = Signature.of([TensorSpec("x", ElementType.INT64)], TensorSpec("inlining_decision", ElementType.INT64))
PASSES = Signature.of([TensorSpec("x", ElementType.INT32, (3,))], TensorSpec("pass_choice", ElementType.INT32))
"""Another kind of decision, of another size in bytes."""


@pytest.fixture(scope="session")
def policies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    repository = tmp_path_factory.mktemp("policies")
    write_policies(repository)
    write_python(repository, "kinds", TWO_KINDS, 'decides = ["inlining_decision", "pass_choice"]')
    write_python(repository, "passes-only", TWO_KINDS, 'decides = ["pass_choice"]')
    write_python(repository, "same", answering("observation['x']"))
    write_python(repository, "where", answering("session.context"))
    takes_z = 'features = [{name = "z", type = "int64_t", shape = [1]}]\n'
    write_python(repository, "needs", answering("observation['z']"), takes_z)
    scores = 'advice = {name = "scores", type = "float", shape = [1, 3]}\n[head]\nadvice = "choice"\n'
    write_python(repository, "scores", answering("[[1.0, 3.0, 2.0]]"), scores)
    write_python(repository, "weigh", answering("sum(float(value.sum()) for value in observation.values())"))
    return repository


@pytest.fixture(scope="module")
def server(policies: Path) -> Iterator[RunningServer]:
    with (
        TemporaryDirectory(prefix="pb-") as folder,
        running_server(policies, Path(folder), "--ledger", Path(folder) / "ledger.db") as running,
    ):
        yield running


class NativeContract(contract.RemoteContract):
    """The conformance suite of the Python connections, run over one of the programs."""

    kind: ClassVar[Kind]

    @pytest.fixture(autouse=True)
    def through_the_program(self, native: Target, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        with programs(self.kind.program(native)) as connect:
            monkeypatch.setattr(contract, "connect", connect)
            yield

    def address(self, running: RunningServer) -> str:
        return self.kind.address(running)


class TestCppOverSocket(NativeContract, contract.TestSocket):
    kind = KINDS["cpp-socket"]


class TestSanitizedCppOverSocket(NativeContract, contract.TestSocket):
    kind = KINDS["cpp-socket-sanitized"]


class TestSanitizedCOverSocket(NativeContract, contract.TestSocket):
    kind = KINDS["c-socket-sanitized"]


class TestCppOverGrpc(NativeContract):
    kind = KINDS["cpp-grpc"]


class TestCOverGrpc(NativeContract):
    kind = KINDS["c-grpc"]


@pytest.fixture(params=KINDS, scope="module")
def kind(request: pytest.FixtureRequest) -> Kind:
    return KINDS[request.param]


@pytest.fixture(scope="module")
def program(kind: Kind, native: Target) -> Path:
    return kind.program(native)


@pytest.fixture(scope="module")
def connection(kind: Kind, program: Path, server: RunningServer) -> Iterator[NativeConnection]:
    with programs(program) as connect:
        yield connect(kind.address(server))


@pytest.fixture
def connect(program: Path) -> Iterator[Connect]:
    """Make connections for one test."""
    with programs(program) as connect:
        yield connect


Open = Callable[..., NativeSession]


@pytest.fixture
def open_session(connection: NativeConnection) -> Open:
    """Open a session on the module's connection."""

    def open_(
        policy: str, signature: Signature, *settings: str, connection: NativeConnection = connection, **options: Any
    ) -> NativeSession:
        return connection.open(PolicyReference.parse(policy), signature, SessionOptions(**options), *settings)

    return open_


@pytest.mark.parametrize("element", list(ElementType), ids=lambda element: element.value)
def test_values_of_every_type_and_shape_come_back_unchanged(open_session: Open, element: ElementType) -> None:
    for shape in SHAPES:
        signature = Signature.of([TensorSpec("x", element, shape)], TensorSpec("advice", element, shape))
        samples = np.array(SAMPLES[element], element.dtype)
        sizes = tuple(2 if size == -1 else size for size in shape)
        value = np.resize(samples, sizes) if 0 not in shape else samples[:0]
        session = open_session("same", signature)
        given = unpack(signature.advice_layout, session.evaluate(pack(signature.features, {"x": value})))["advice"]
        assert given.shape == value.shape
        assert given.tolist() == value.tolist()
        session.close()


def test_a_varying_size_may_be_zero_and_may_change_with_every_observation(open_session: Open) -> None:
    signature = Signature.of(
        [TensorSpec("x", ElementType.FLOAT, (-1, 3))], TensorSpec("advice", ElementType.FLOAT, (-1, 3))
    )
    session = open_session("same", signature)
    for rows in (2, 0, 100_000, 1):
        value = np.arange(rows * 3, dtype=np.float32).reshape(rows, 3)
        given = unpack(signature.advice_layout, session.evaluate(pack(signature.features, {"x": value})))["advice"]
        assert given.tolist() == value.tolist()


def test_features_that_lie_unaligned_on_the_wire_are_aligned_in_memory(open_session: Open) -> None:
    kinds = [ElementType.INT8, ElementType.DOUBLE, ElementType.UINT16, ElementType.INT64, ElementType.BOOL]
    kinds += [ElementType.FLOAT, ElementType.UINT8, ElementType.UINT64]
    features = [TensorSpec(f"f{n}", kind, (n % 3 + 1,)) for n, kind in enumerate(kinds)]
    session = open_session("weigh", Signature.of(features, TensorSpec("sum", ElementType.DOUBLE)))
    for n, kind in enumerate(kinds):
        session.ask("write", n, kind.value, *[1] * (n % 3 + 1))
    assert session.decide() == sum(spec.count for spec in features)


def test_buffers_are_written_in_place_and_a_wrong_type_or_index_gives_none(open_session: Open) -> None:
    varying = TensorSpec("v", ElementType.INT64, (-1,))
    session = open_session("sum", Signature.of([*SUM.features.specs, varying], SUM.advice))
    session.ask("write", 0, "int64_t", 2**62)
    session.ask("write", 2, "int64_t", 5)
    assert session.ask("scalar", "int64_t") == str(2**62 + 5)
    session.ask("write", 2, "int64_t", 6)
    assert session.decide() == 2**62 + 6
    assert session.ask("write", 0, "int32_t", 1) == "null"
    assert session.ask("write", 9, "int64_t", 1) == "null"


def test_a_scalar_of_another_type_is_refused_before_anything_is_sent(open_session: Open) -> None:
    session = open_session("sum", SUM, options={"raise_at": "1"})
    with pytest.raises(InvalidError, match=r"the advice is sum: int64_t\[1\] and no single float"):
        session.ask("scalar", "float")
    with pytest.raises(PolicyFailedError):
        session.ask("scalar", "int64_t")


def test_evaluating_leaves_the_features_untouched(open_session: Open) -> None:
    features = [*SUM.features.specs, TensorSpec("names", ElementType.STRING, (-1,))]
    session = open_session("sum", Signature.of(features, SUM.advice))
    session.set(0, np.array([7]))
    session.set(1, np.array([1, 2, 3], np.float32))
    session.set(3, np.array(["x", "größer"], object))
    before = [session.ask("get", n) for n in range(4)]
    assert session.decide() == 7
    assert [session.ask("get", n) for n in range(4)] == before


def test_a_value_that_does_not_fit_is_refused_and_changes_nothing(open_session: Open) -> None:
    varying = [TensorSpec("v", ElementType.FLOAT, (-1, 2)), TensorSpec("w", ElementType.FLOAT, (-1, -1))]
    session = open_session("sum", Signature.of([*SUM.features.specs, *varying], SUM.advice))
    session.set(0, np.array([1]))
    for words in ("0 2 1 2", "0 1 1 2", "1 ? 1 2", "3 2 1 2", "3 -1,2 1 2", "4 0,-1"):
        with pytest.raises(InvalidError, match="was given"):
            session.ask("set", words)
    with pytest.raises(InvalidError, match="leaves several sizes open"):
        session.ask("set", "4 ? 1 2")
    assert session.decide() == 1
    session.ask("set", 3, "?", "1 2 3 4")
    assert session.ask("get", 3) == "2,2 1 2 3 4"


def test_a_string_that_is_not_utf8_is_refused(open_session: Open) -> None:
    session = open_session("longest", contract.LONGEST)
    with pytest.raises(InvalidError, match=r"not UTF-8: '\\xff'"):
        session.ask("set", 0, "1", ":%FF")
    with pytest.raises(InvalidError, match="UTF-8"):
        session.ask("context", ":%FF")
    session.set(0, np.array(["a", "größer"], object))
    assert session.decide().item() == "größer"


@pytest.mark.parametrize(
    ("features", "error", "message"),
    [
        ([":x int64_t 1", ":x float 1"], InvalidError, "two tensors are named 'x'"),
        ([":x int64_t -2"], InvalidError, "a dimension is -1"),
        ([":x int64_t 4294967296"], TooLargeError, "too large"),
        ([":x int8_t 2147483647", ":y int8_t 1"], TooLargeError, "together exceed"),
        ([": int64_t 1"], InvalidError, "an empty name"),
        ([":%FF int64_t 1"], InvalidError, "not UTF-8"),
    ],
)
def test_invalid_specs_are_refused(
    connection: NativeConnection, features: list[str], error: type[Exception], message: str
) -> None:
    connection.prepare(PolicyReference("sum"), Signature.of([], SUM.advice), SessionOptions())

    def open_with_them() -> None:
        for feature in features:
            connection.program.ask("feature", feature)
        connection.program.ask("use", 63)
        connection.program.ask("open")

    with pytest.raises(error, match=message):
        open_with_them()


def test_an_input_that_the_client_lacks_is_an_error_with_both_specs(open_session: Open) -> None:
    with pytest.raises(InvalidError, match="z"):
        open_session("needs", SUM).decide()


@OF_CPP
def test_a_runner_changes_the_kind_of_decision_and_stays_on_its_session(
    open_session: Open, server: RunningServer
) -> None:
    session = open_session("kinds", INLINING, context="a.c")
    assert session.decides == ["inlining_decision", "pass_choice"]
    number = session.id
    session.set(0, np.array([7]))
    assert session.decide() == 7
    for context in ("f", "main"):
        session.bind(PolicyReference("kinds"), PASSES)
        session.context(context)
        session.set(0, np.array([1, 2, 3], np.int32))
        assert session.decide() == 600 + len(context)
    session.bind(PolicyReference("kinds"), INLINING)
    session.set(0, np.array([8]))
    assert session.decide() == 8
    assert session.id == number
    session.report(Outcome({"text": 1.0}, "ok"))
    with LedgerReader(Path(server.socket.removeprefix("socket:")).with_name("ledger.db")) as reader:
        batches = reader.trajectory(reader.session(number)).batches
    assert [batch.signature.advice.name for batch in batches] == [
        "inlining_decision",
        "pass_choice",
        "inlining_decision",
    ]
    assert [batch.contexts.tolist() for batch in batches] == [["a.c"], ["f", "main"], ["main"]]


@OF_CPP
def test_a_session_opens_on_a_policy_that_lacks_the_first_kind_and_asks_for_the_other(open_session: Open) -> None:
    session = open_session("passes-only", INLINING, "several_kinds")
    assert session.decides == ["pass_choice"]
    session.bind(PolicyReference("passes-only"), PASSES)
    session.set(0, np.array([1, 2, 3], np.int32))
    assert session.decide() == 600
    with pytest.raises(InvalidError, match="decides pass_choice, and not 'inlining_decision'"):
        open_session("passes-only", INLINING).decide()


def test_the_policy_reads_the_context(open_session: Open) -> None:
    signature = Signature.of([TensorSpec("x", ElementType.INT64)], TensorSpec("where", ElementType.STRING, ()))
    session = open_session("where", signature, context='"a\\b\n".c')
    assert session.decide().item() == '"a\\b\n".c'
    session.context("größer")
    assert session.decide().item() == "größer"


def test_a_session_stays_on_its_version_while_another_is_published(
    kind: Kind, server_factory: ServerFactory, connect: Connect, tmp_path: Path
) -> None:
    write_python(tmp_path, "number", answering("1"))
    connection = connect(kind.address(server_factory(tmp_path)))
    signature = Signature.of([TensorSpec("x", ElementType.INT64)], SUM.advice)
    first = connection.open(PolicyReference("number"), signature, SessionOptions())
    write_python(tmp_path, "number", answering("2"), version=2)

    def newest() -> NativeSession:
        return connection.open(PolicyReference("number"), signature, SessionOptions())

    second = newest()
    while second.policy.version == 1:
        second = newest()
    assert (second.decide(), first.decide()) == (2, 1)
    assert first.policy.version == 1
    assert first.policy.digest != second.policy.digest


def test_an_outcome_is_in_the_ledger_once_the_report_returns(
    open_session: Open, connection: NativeConnection, server: RunningServer, kind: Kind
) -> None:
    # The C ABI has no numbers by context.
    contexts = {"_Z1fv": {"text": 3.5}, "größer": {"text": 1.0, "exec": 0.0}} if "cpp" in kind.target else {}
    session = open_session("sum", SUM, labels={"project": "größer"})
    session.decide()
    session.report(Outcome({"text": 128.5, "größe": -1e300}, "ok"))
    name = session.id
    session.close()
    connection.report_outcome(name, Outcome({"cycles": 0.1}, "", contexts))
    with LedgerReader(Path(server.socket.removeprefix("socket:")).with_name("ledger.db")) as reader:
        found = reader.session(name)
        assert reader.context_outcomes(found) == contexts
    assert found.outcome == Outcome({"text": 128.5, "größe": -1e300, "cycles": 0.1}, "ok")
    assert found.labels == {"project": "größer"}
    with pytest.raises(NotFoundError, match="nowhere"):
        connection.report_outcome("nowhere", Outcome({}, "ok"))


def test_an_outcome_without_a_ledger_is_unimplemented(
    kind: Kind, server_factory: ServerFactory, connect: Connect, policies: Path
) -> None:
    connection = connect(kind.address(server_factory(policies)))
    session = connection.open(PolicyReference("sum"), SUM, SessionOptions())
    with pytest.raises(UnsupportedError, match="ledger"):
        session.report(Outcome({}, "ok"))
    with pytest.raises(UnsupportedError, match="ledger"):
        connection.report_outcome("any", Outcome({}, "ok"))


def test_an_outcome_that_is_not_finite_is_refused_and_the_session_continues(open_session: Open) -> None:
    session = open_session("sum", SUM)
    with pytest.raises(InvalidError, match="finite"):
        session.ask("report", ":ok", ":text", "nan")
    assert session.decide() == 0


def test_a_session_that_explores_says_how_probable_its_advice_was(open_session: Open) -> None:
    signature = Signature.of([TensorSpec("mask", ElementType.INT64, (3,))], TensorSpec("choice", ElementType.INT64))
    session = open_session("scores", signature, exploration=Exploration(seed=7, temperature=1.0))
    weights = np.exp([1.0, 3.0, 2.0])
    expected = np.log(weights / weights.sum())
    chosen = set()
    for _ in range(60):
        choice = session.decide()
        assert session.log_probability == pytest.approx(expected[choice], rel=1e-6)
        chosen.add(choice)
    assert len(chosen) > 1
    sober = open_session("scores", signature)
    assert sober.decide() == 1
    assert sober.log_probability is None


def test_an_exploration_out_of_range_is_refused(connection: NativeConnection) -> None:
    connection.prepare(PolicyReference("scores"), SUM, SessionOptions())
    connection.program.ask("explore", 1, 1.0, 1.5)
    connection.program.ask("use", 63)
    with pytest.raises(InvalidError, match="epsilon is a probability"):
        connection.program.ask("open")


def test_a_fallback_decides_where_the_policy_fails_and_is_counted(open_session: Open) -> None:
    session = open_session("sum", SUM, "fallback 77", options={"raise_at": "3"})
    session.ask("write", 0, "int64_t", 5)
    assert [session.decide() for _ in range(5)] == [5, 5, 77, 77, 77]
    assert session.counts == {"decisions": 2, "fallbacks": 3, "retries": 0, "reopened": 0}
    with pytest.raises(PolicyFailedError, match="boom"):
        session.ask("status")


def test_a_fallback_finishes_the_compilation_when_the_server_is_killed(
    kind: Kind, server_factory: ServerFactory, connect: Connect, policies: Path
) -> None:
    running = server_factory(policies)
    connection = connect(kind.address(running))
    session = connection.open(PolicyReference("sum"), SUM, SessionOptions(), "fallback 77")
    plain = connection.open(PolicyReference("sum"), SUM, SessionOptions())
    assert (session.decide(), plain.decide()) == (0, 0)
    running.kill()
    assert [session.decide() for _ in range(3)] == [77, 77, 77]
    assert session.counts["fallbacks"] == 3
    with pytest.raises(UnavailableError):
        plain.decide()
    with pytest.raises(PreconditionError, match="the session is over"):
        plain.decide()


def test_with_a_fallback_no_server_is_needed_at_all(kind: Kind, connect: Connect) -> None:
    address = "socket:/nowhere/server.sock" if kind.transport == "socket" else "grpc:127.0.0.1:1"
    connection = connect(address)
    session = connection.open(PolicyReference("sum"), SUM, SessionOptions(), "fallback -1")
    session.context("f")
    assert session.decide() == -1
    with pytest.raises(UnavailableError):
        session.ask("status")
    with pytest.raises(UnavailableError):
        _ = session.policy


def test_a_session_that_may_reopen_continues_with_the_same_version_on_the_next_server(
    kind: Kind, connect: Connect, tmp_path: Path
) -> None:
    write_python(tmp_path, "number", answering("1"))
    with TemporaryDirectory(prefix="pb-") as folder:
        # Both servers have the same addresses.
        listen = ("--grpc", f"unix:{folder}/grpc.sock")
        with running_server(tmp_path, Path(folder), *listen) as first:
            connection = connect(first.socket if kind.transport == "socket" else first.others[0])
            session = connection.open(PolicyReference("number"), SUM, SessionOptions(), "reopen")
            assert session.decide() == 1
            first.kill()
        write_python(tmp_path, "number", answering("2"), version=2)
        with running_server(tmp_path, Path(folder), *listen):
            assert session.decide() == 1
            assert session.counts == {"decisions": 2, "fallbacks": 0, "retries": 1, "reopened": 1}
            assert session.policy.version == 1
            connection.close()


def test_an_address_of_a_scheme_that_is_not_linked_says_what_to_link(connect: Connect) -> None:
    with pytest.raises(UnsupportedError, match=r"PolicyBridge::onnx"):
        connect("onnx:model.onnx")
    with pytest.raises(InvalidError, match="no address"):
        connect("socket:")


@pytest.mark.parametrize(
    ("address", "cure"), [("http://localhost:80", "grpc:HOST:PORT"), ("gone.sock", "socket:gone.sock")]
)
def test_what_is_plainly_no_address_is_refused_with_the_one_that_is_meant(
    connect: Connect, address: str, cure: str
) -> None:
    with pytest.raises(InvalidError, match=cure):
        connect(address)


def test_threads_with_a_runner_each_share_a_connection(native: Target, server: RunningServer) -> None:
    target = "policybridge-cpp-client"
    built = native(target, *sanitized("thread"))
    with programs(built / "bin" / target) as connect:
        connection = connect(server.socket)
        connection.prepare(PolicyReference("sum"), SUM, SessionOptions())
        assert connection.program.ask("threads", 8, 100) == "800"

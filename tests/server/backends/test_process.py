"""``isolation = "process"``: whatever happens in a policy's process costs its sessions and nobody else."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from policybridge_core.errors import PolicyBridgeError, PolicyFailedError, PreconditionError
from policybridge_serdes import (
    ElementType,
    Layout,
    PolicyReference,
    PolicyVersion,
    SessionOptions,
    TensorSpec,
    pack,
    tensor,
)
from policybridge_server.backends.contract import Batch, SessionView
from policybridge_server.backends.process.arrays import check_advice, decode, encode
from policybridge_server.backends.process.model import ProcessModel
from policybridge_server.repository import Repository
from tests.conftest import ServerFactory
from tests.onnx_models import make_model, write_onnx
from tests.repositories import answering, write_python
from tests.server.backends.backends import evaluate, load
from tests.server.engine.misbehaving import (
    CRASH,
    DIE,
    FILL,
    HANG,
    HOLD,
    OBEYS,
    X,
    ask,
    connected,
    health,
    open_session,
)

PROCESS = 'isolation = "process"'


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "policies"
    write_python(folder, "obeys", OBEYS, f"{PROCESS}\ndecision_timeout = 5\nmemory_limit = 2_000_000_000\n")
    write_python(folder, "echo", answering("observation['x']"))
    return folder


def open_model(repository: Path, name: str) -> ProcessModel:
    stored = Repository([repository]).resolve(PolicyReference(name))
    return ProcessModel(stored, stored.folder, 30, 60)


def children(pid: int) -> list[int]:
    found: list[int] = []
    for thread in Path(f"/proc/{pid}/task").iterdir():
        # A thread may end while they are listed; it has no children then.
        with suppress(FileNotFoundError, ProcessLookupError):
            found += [int(child) for child in (thread / "children").read_text().split()]
    return found


def descriptors(pid: int) -> dict[str, str]:
    """Name what each descriptor of a process is; those that it closes while they are listed are left out."""
    found: dict[str, str] = {}
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            found[each.name] = str(each.readlink())
    return found


def wait_for_end(pid: int) -> None:
    """Wait until there is no such process; a zombie that nobody has asked for is none."""
    due = time.monotonic() + 30
    while Path(f"/proc/{pid}").exists() and " Z " not in Path(f"/proc/{pid}/stat").read_text():
        assert time.monotonic() < due, f"{pid} goes on"
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (DIE, "the process of obeys@1 ended with exit status 7"),
        (CRASH, "the process of obeys@1 was ended by SIGSEGV"),
        (HANG, "obeys@1 gave no answer within 5 s; its process was killed"),
    ],
    ids=["exit", "crash", "hang"],
)
def test_the_end_of_a_process_costs_its_sessions_and_nobody_else(
    repository: Path, server_factory: ServerFactory, value: int, message: str
) -> None:
    server = server_factory(repository)
    with connected(server) as connection:
        beside, other = open_session(connection, "echo"), open_session(connection)
        assert (ask(beside, 3), ask(other, 1)) == (3, 101)
        with pytest.raises(PolicyFailedError, match=message):
            ask(open_session(connection), value)
        assert health(server, "obeys") == "NOT_SERVING"
        with pytest.raises(PolicyFailedError, match="ended during this session"):
            ask(other, 1)
        # It is started again for the next session.
        assert (ask(beside, 3), ask(open_session(connection), 1)) == (3, 101)
    assert health(server, "obeys") == health(server) == "SERVING"


def test_a_policy_may_not_allocate_more_than_its_limit(repository: Path, server_factory: ServerFactory) -> None:
    with connected(server_factory(repository)) as connection:
        with pytest.raises(PolicyFailedError, match="MemoryError"):
            ask(open_session(connection), FILL)
        assert ask(open_session(connection), 1) == 101


def test_a_policy_that_forks_answers_each_request_once(repository: Path, server_factory: ServerFactory) -> None:
    source = """
        import os

        class Policy:
            def evaluate(self, observation, session):
                child = os.fork()
                if child:
                    os.waitpid(child, 0)
                    return observation["x"]
                return 1000
        """
    write_python(repository, "forks", source, f"{PROCESS}\n")
    with connected(server_factory(repository)) as connection:
        session = open_session(connection, "forks")
        assert [ask(session, value) for value in range(3)] == [0, 1, 2]


def test_a_process_that_ends_again_and_again_is_started_less_and_less_often(
    repository: Path, server_factory: ServerFactory
) -> None:
    with connected(server_factory(repository)) as connection:
        for _ in range(2):
            with pytest.raises(PolicyFailedError, match="exit status 7"):
                ask(open_session(connection), DIE)
        # The third comes too early: nothing is started.
        with pytest.raises(PolicyFailedError, match=r"exit status 7; it is started again in \d\.\d s"):
            ask(open_session(connection), 1)


def test_a_process_ends_with_a_server_that_is_killed_also_while_it_holds_the_interpreter_lock(
    repository: Path, tmp_path: Path, server_factory: ServerFactory
) -> None:
    server, marker = server_factory(repository), tmp_path / "marker"
    (child,) = children(server.process.pid)
    with connected(server) as connection:
        options = SessionOptions(options={"marker": str(marker)})
        session = connection.open(PolicyReference("obeys"), X, options)

        def hold() -> None:
            with suppress(PolicyBridgeError):
                ask(session, HOLD)

        asking = threading.Thread(target=hold)
        asking.start()
        while not marker.exists():
            time.sleep(0.02)
        server.kill()
        wait_for_end(child)
        asking.join(30)


def test_a_process_has_no_descriptor_of_the_server(repository: Path, server_factory: ServerFactory) -> None:
    server = server_factory(repository)
    (child,) = children(server.process.pid)
    ours, theirs = descriptors(server.process.pid), descriptors(child)
    shared = set(ours.values()) & set(theirs.values()) - {ours["2"]}
    assert not {each for each in shared if each.startswith("socket")}


@pytest.mark.parametrize("toml", [f"inline = true\n{PROCESS}", "memory_limit = 1_000_000_000"])
def test_keys_that_exclude_each_other_are_refused(repository: Path, toml: str) -> None:
    (repository / "obeys" / "policy.toml").write_text(f'backend = "python"\n{toml}\n')
    with pytest.raises(PreconditionError, match=r"policy\.toml"):
        Repository([repository]).resolve(PolicyReference("obeys"))


@pytest.mark.parametrize(
    ("spec", "value"),
    [
        (TensorSpec("x", ElementType.FLOAT, (2, 3)), np.arange(6, dtype=np.float32).reshape(2, 3)),
        (TensorSpec("x", ElementType.DOUBLE, (-1, 2)), np.arange(8.0).reshape(4, 2)),
        (TensorSpec("x", ElementType.INT16, (-1,)), np.array([], np.int16)),
        (TensorSpec("x", ElementType.BOOL, (3,)), np.array([True, False, True])),
        (TensorSpec("x", ElementType.STRING, (2,)), np.array(["größer", ""], object)),
        (TensorSpec("x", ElementType.BYTES, (-1,)), np.array([b"\0\xff"], object)),
    ],
    ids=str,
)
def test_values_of_every_kind_pass_through_a_process_unchanged(
    tmp_path: Path, spec: TensorSpec, value: np.ndarray
) -> None:
    write_python(tmp_path, "same", answering("observation['x']"), PROCESS)
    model = open_model(tmp_path, "same")
    session = SessionView("a", PolicyVersion("p", 1, ""))
    advice = TensorSpec("advice", spec.type, spec.shape)
    try:
        given = model.evaluate(Batch(pack(Layout((spec,)), {"x": value}), [session], Layout((advice,))))
    finally:
        model.close()
    assert tensor(advice, given).tolist() == value.tolist()
    assert tensor(advice, given).dtype == spec.type.dtype


def test_a_model_gives_the_same_bits_in_a_process_as_in_a_thread(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    weights = {"w": generator.normal(size=(4, 3)).astype(np.float32)}
    node = helper.make_node("MatMul", ["x", "w"], ["advice"])
    shape: tuple[int, list[int | str]] = (TensorProto.FLOAT, ["batch", 4])
    made = make_model([node], {"x": shape}, {"advice": (TensorProto.FLOAT, ["batch", 3])}, weights)
    write_onnx(tmp_path, "thread", made)
    write_onnx(tmp_path, "process", made, PROCESS)
    there, here = open_model(tmp_path, "process"), load(tmp_path, "thread")
    assert (there.signature, there.batched) == (here.signature, here.batched)
    assert here.signature.features is not None
    assert here.signature.advice is not None
    values = np.zeros(9, here.signature.features.dtype)
    values["x"] = generator.normal(size=(9, 4))
    try:
        given = [evaluate(model, values, here.signature.advice).tobytes() for model in (there, here)]
    finally:
        there.close()
    assert given[0] == given[1]


def test_what_a_process_sends_is_read_as_the_advice_or_refused() -> None:
    varying = Layout((TensorSpec("a", ElementType.INT64, (-1,)),))
    good = encode(pack(varying, {"a": np.arange(3)}))
    assert decode(good, varying.dtype, 1)["a"][0].tolist() == [0, 1, 2]
    fixed = Layout((TensorSpec("a", ElementType.INT64, (2,)),))
    wrong: list[Callable[[], object]] = [
        lambda: decode(b"\0" * 15, fixed.dtype, 1),
        lambda: decode(b"\0" * 32, fixed.dtype, 1),
        *(lambda size=size: decode(good[:size], varying.dtype, 1) for size in range(len(good))),
        lambda: decode(good + b"\0", varying.dtype, 1),
        lambda: decode(b"|O8" + good[3:], varying.dtype, 1),
        lambda: decode(b"\xff\0\1" + good[3:], varying.dtype, 1),
        lambda: decode(good[:4] + b"\xff" * 8 + good[12:], varying.dtype, 1),
        lambda: check_advice(decode(b"<f8" + good[3:], varying.dtype, 1), varying),
        lambda: check_advice(decode(b"STR\0" + b"\0" * 8, varying.dtype, 1), varying),
    ]
    for each in wrong:
        with pytest.raises(PolicyFailedError):
            each()

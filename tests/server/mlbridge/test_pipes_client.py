"""The compiler's end of the pipes in Python: against the package that models are written with, and our own server."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread

import numpy as np
import pytest

from policybridge_client import ElementType, Exploration, ModelRunner, TensorSpec, connect, open_runner
from policybridge_core.errors import (
    DeadlineError,
    InvalidError,
    PreconditionError,
    TooLargeError,
    UnavailableError,
    UnsupportedError,
)
from policybridge_serdes import Outcome, PolicyReference, SessionOptions, Signature
from tests.locks import one_at_a_time
from tests.native.conftest import BUILD
from tests.server.mlbridge.pipes_server import Kit, write_policies

REQUIRED = "POLICYBRIDGE_REQUIRE_NETWORK"
"""Environment variable: set where PyPI has to be reachable, so that nothing is skipped."""

PACKAGE = "compilerinterface==0.0.2"

KINDS = {
    "int": ElementType.INT32,
    "long": ElementType.INT64,
    "float": ElementType.FLOAT,
    "double": ElementType.DOUBLE,
}


@pytest.fixture(scope="module")
def peer() -> Path:
    """Give a folder with the package, from PyPI once."""
    folder = BUILD.parent / PACKAGE.replace("==", "-")
    with one_at_a_time(folder):
        if not folder.exists():
            install(folder)
    return folder


def install(folder: Path) -> None:
    fresh = folder.with_suffix(".new")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(fresh), PACKAGE]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode and not os.environ.get(REQUIRED):
        pytest.skip(f"{PACKAGE} cannot be had: {done.stderr[-500:]}")
    assert done.returncode == 0, done.stderr
    fresh.rename(folder)


Peer = Callable[..., None]


@pytest.fixture
def started(peer: Path, tmp_path: Path) -> Iterator[Peer]:
    """Start ``pipes_peer.py`` on the base ``mlb`` in the test's folder."""
    processes: list[subprocess.Popen[str]] = []

    def start(form: str, kind: str, compiles: int = 1) -> None:
        words = [sys.executable, Path(__file__).with_name("pipes_peer.py"), form, tmp_path / "mlb", kind, compiles]
        environment = {**os.environ, "PYTHONPATH": str(peer)}
        process = subprocess.Popen(list(map(str, words)), stdout=subprocess.PIPE, text=True, env=environment)
        processes.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "made\n"

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def runner(address: str, kind: str, timeout: float = 10) -> ModelRunner:
    element = KINDS[kind.removeprefix("v")]
    shape = (-1,) if kind.startswith("v") else (1,)
    features = [TensorSpec("x", element, shape)]
    return open_runner(
        f"mlbridge-pipe:{address}",
        policy="any",
        features=features,
        advice=TensorSpec("a", element, shape),
        timeout=timeout,
    )


@pytest.mark.parametrize("form", ["bytes", "json"])
@pytest.mark.parametrize("kind", [*KINDS, *(f"v{kind}" for kind in KINDS)])
def test_a_model_on_compilerinterface_answers_our_model_runner(
    started: Peer, tmp_path: Path, form: str, kind: str
) -> None:
    started(form, kind)
    with runner(f"{tmp_path}/mlb:{form}", kind) as asking:
        for sent in ([1.0, 2.0, 41.0], [7.0]):
            asking["x"] = np.array(sent if kind.startswith("v") else sent[:1]).astype(
                KINDS[kind.removeprefix("v")].dtype
            )
            advice = asking.evaluate()
            assert np.ravel(advice).tolist() == [x + 1 for x in (sent if kind.startswith("v") else sent[:1])]
            assert np.asarray(advice).dtype == KINDS[kind.removeprefix("v")].dtype


def test_compilerinterface_serves_one_compile_after_another(started: Peer, tmp_path: Path) -> None:
    started("json", "int", 3)
    for first in range(3):
        with runner(f"{tmp_path}/mlb:json", "int") as asking:
            for x in range(first, first + 5):
                asking["x"] = x
                assert asking.evaluate() == x + 1


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("pipes")
    kit = Kit(Path("/nowhere"), write_policies(folder / "policies"))
    pipes = [
        "bytes,policy=types,advice=string,features.text=string,features.flag=bool",
        "json:json,policy=types,advice=string",
        "inf:json,policy=same,advice=double[-1],features.x=double",
        "slow,policy=slow,advice=int,features.x=int",
    ]
    with kit.serving(folder, pipes=pipes):
        yield folder


class TestOwnServer:
    @pytest.mark.parametrize("form", ["bytes", "json"])
    def test_every_type_arrives(self, base: Path, form: str) -> None:
        features = [
            TensorSpec("text", ElementType.STRING, ()),
            TensorSpec("flag", ElementType.BOOL),
            TensorSpec("x", ElementType.INT64, (2, 2)),
        ]
        advice = TensorSpec("a", ElementType.STRING, ())
        address = f"mlbridge-pipe:{base}/{form}:{form}"
        with open_runner(address, policy="any", features=features, advice=advice) as asking:
            asking["text"], asking["flag"] = "größer", True
            assert asking.evaluate() == ("int64[2, 2]" if form == "bytes" else "int64[4]")

    def test_infinity_and_nan_travel_in_json(self, base: Path) -> None:
        with runner(f"{base}/inf:json", "vdouble") as asking:
            asking["x"] = np.array([np.inf, 0.5, -np.inf])
            assert np.ravel(asking.evaluate()).tolist() == [np.inf, 0.5, -np.inf]

    def test_no_answer_in_time_is_a_deadline_and_the_next_compile_is_served(self, base: Path) -> None:
        with runner(f"{base}/slow", "int", timeout=0.3) as asking:
            asking["x"] = 2
            with pytest.raises(DeadlineError, match=r"within 0\.3 s"):
                asking.evaluate()
            with pytest.raises(PreconditionError, match="over"):
                asking.evaluate()
        with runner(f"{base}/slow", "int") as asking:
            assert asking.evaluate() == 0

    def test_what_the_format_has_no_words_for_is_refused(self, base: Path) -> None:
        connection = connect(f"mlbridge-pipe:{base}/slow")
        features, advice = [TensorSpec("x", ElementType.INT32)], TensorSpec("a", ElementType.INT32)
        signature = Signature.of(features, advice)
        for options in (SessionOptions(options={"a": "b"}), SessionOptions(exploration=Exploration())):
            with pytest.raises(UnsupportedError, match="neither"):
                connection.open(PolicyReference("any"), signature, options)
        session = connection.open(PolicyReference("any"), signature, SessionOptions())
        with pytest.raises(UnsupportedError, match="neither the policy"):
            _ = session.policy
        with pytest.raises(PreconditionError, match="one session at a time"):
            connection.open(PolicyReference("any"), signature, SessionOptions())
        with pytest.raises(UnsupportedError, match="outcomes"):
            session.report(Outcome({"text": 1.0}))
        connection.check()
        connection.close()
        two_open = Signature.of(features, TensorSpec("a", ElementType.INT32, (-1, -1)))
        with pytest.raises(InvalidError, match="flat"):
            connect(f"mlbridge-pipe:{base}/slow").open(PolicyReference("any"), two_open, SessionOptions())


def test_a_server_that_dies_is_unavailable_at_once(tmp_path: Path) -> None:
    kit = Kit(Path("/nowhere"), write_policies(tmp_path / "policies"))
    serving = kit.serving(tmp_path, pipes=["mlb,policy=slow,advice=int,features.x=int"])
    with serving as running, runner(f"{tmp_path}/mlb", "int") as asking:
        assert asking.evaluate() == 0
        running.process.kill()
        running.process.wait()
        with pytest.raises(UnavailableError, match="went away"):
            asking.evaluate()


def test_a_model_that_closes_the_pipes_of_the_compile_before_is_asked_again(tmp_path: Path) -> None:
    for which in ("in", "out"):
        os.mkfifo(tmp_path / f"mlb.{which}")

    def serve() -> None:
        size = b""
        while not size:  # the client may be about to close the ends that it had of the model before
            with (tmp_path / "mlb.in").open("wb") as answers, (tmp_path / "mlb.out").open("rb") as questions:
                if size := questions.read(8):
                    questions.read(int.from_bytes(size, "little"))
                    answers.write((4).to_bytes(8, "little") + (7).to_bytes(4, "little"))

    before = os.open(tmp_path / "mlb.out", os.O_RDONLY | os.O_NONBLOCK)
    with runner(f"{tmp_path}/mlb", "int") as asking:
        os.close(before)
        Thread(target=serve, daemon=True).start()
        assert asking.evaluate() == 7


def test_a_model_that_goes_away_before_its_first_answer_has_the_timeout_to_come_back(tmp_path: Path) -> None:
    for which in ("in", "out"):
        os.mkfifo(tmp_path / f"mlb.{which}")
    model = os.open(tmp_path / "mlb.out", os.O_RDONLY | os.O_NONBLOCK)
    with runner(f"{tmp_path}/mlb", "int", timeout=0.1) as asking:
        os.close(model)
        with pytest.raises(UnavailableError, match=r"no model serves the FIFO .*mlb\.out within 0\.1 s"):
            asking.evaluate()
    # It takes each message, and answers none.
    model = os.open(tmp_path / "mlb.out", os.O_RDONLY | os.O_NONBLOCK)
    with runner(f"{tmp_path}/mlb", "int", timeout=0.1) as asking, pytest.raises(UnavailableError, match="went away"):
        asking.evaluate()
    os.close(model)


def test_nobody_behind_the_fifos_is_an_error_that_names_them(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match=r"mlb\.in within"):
        connect(f"mlbridge-pipe:{tmp_path}/mlb", timeout=0.05).check()
    os.mkfifo(tmp_path / "mlb.in")
    os.mkfifo(tmp_path / "mlb.out")
    with pytest.raises(UnavailableError, match=r"mlb\.out within"):
        connect(f"mlbridge-pipe:{tmp_path}/mlb", timeout=0.05).check()


def test_an_answer_that_lies_about_its_length_is_refused(tmp_path: Path) -> None:
    for which in ("in", "out"):
        os.mkfifo(tmp_path / f"mlb.{which}")
    answers = os.open(tmp_path / "mlb.in", os.O_RDWR)
    questions = os.open(tmp_path / "mlb.out", os.O_RDONLY | os.O_NONBLOCK)
    os.write(answers, b"\xff" * 8)
    with runner(f"{tmp_path}/mlb", "int") as asking, pytest.raises(TooLargeError, match="announces"):
        asking.evaluate()
    os.close(answers)
    os.close(questions)

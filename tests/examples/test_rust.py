"""The example in Rust, which knows the socket's protocol by proto/SOCKET.md alone."""

import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest

from policybridge_client import ElementType, TensorSpec, open_runner
from tests.conftest import RunningServer, ServerFactory, running_server
from tests.docs.pages import ROOT
from tests.native.conftest import missing
from tests.repositories import answering, dying, write_python

EXAMPLE = ROOT / "examples" / "compilers" / "advice.rs"
NUMBERS = [kind for kind in ElementType if not kind.is_text]
_RAISING = "class Policy:\n    def evaluate(self, observation, session):\n        raise ValueError('no \"idea\"')\n"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the example by the command that it names; a warning is an error."""
    if shutil.which("rustc") is None:
        missing("rustc")
    folder = tmp_path_factory.mktemp("rust")
    shutil.copy(EXAMPLE, folder)
    (command,) = re.findall(r"^//! +(rustc .*)$", EXAMPLE.read_text(), re.MULTILINE)
    words = command.split()
    words += ["-D", "warnings"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return folder.joinpath(words[words.index("-o") + 1])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    repository = tmp_path_factory.mktemp("repository")
    write_python(repository, "reverse", answering('observation["items"][::-1]'))
    write_python(repository, "sum", answering('observation["x"].sum() + observation["y"].sum() - len(session.context)'))
    write_python(repository, "raising", _RAISING)
    with TemporaryDirectory(prefix="pb-") as folder, running_server(repository, Path(folder)) as running:
        yield running


def tensor(spec: TensorSpec, elements: Sequence[object] | None = None) -> str:
    """Write a tensor as the program takes it."""
    written = f"{spec.name}:{spec.type.value}:{'x'.join(map(str, spec.shape))}"
    return written if elements is None else f"{written}={','.join(map(str, elements))}"


def ask(program: Path, address: str, policy: str, *tensors: str) -> "subprocess.CompletedProcess[str]":
    command: list[str | Path] = [program, address.removeprefix("socket:"), policy, *tensors]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def answer(program: Path, address: str, policy: str, *tensors: str) -> list[str]:
    done = ask(program, address, policy, *tensors)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.removesuffix("\n").split(",")


def python_answer(address: str, policy: str, advice: TensorSpec, features: dict[TensorSpec, Any]) -> np.ndarray:
    with open_runner(address, policy=policy, features=list(features), advice=advice) as runner:
        for spec, value in features.items():
            runner[spec.name] = np.asarray(value).reshape(spec.shape)
        return np.atleast_1d(np.asarray(runner.evaluate()))


def edges(kind: ElementType) -> list[Any]:
    """Give elements at the ends of a type's range."""
    if kind is ElementType.BOOL:
        return [0, 1, 1]
    if kind.dtype.kind == "f":
        limits = np.finfo(kind.dtype)
        return [limits.max, limits.smallest_subnormal, -0.1]
    return [np.iinfo(kind.dtype).min, np.iinfo(kind.dtype).max, 7]


def parse(words: list[str], kind: ElementType) -> np.ndarray:
    return np.array([float(word) if kind.dtype.kind == "f" else int(word) for word in words], kind.dtype)


@pytest.mark.parametrize("shape", [(3,), (3, 1), (-1,), (1, -1)], ids=str)
def test_advice_of_every_type_of_numbers_is_what_the_client_in_python_gets(
    program: Path, server: RunningServer, shape: tuple[int, ...]
) -> None:
    for kind in NUMBERS:
        items, advice = TensorSpec("items", kind, shape), TensorSpec("advice", kind, shape)
        sent = np.array(edges(kind), kind.dtype)
        words = [str(int(each)) if kind is ElementType.BOOL else str(each) for each in sent]
        got = answer(program, server.socket, "reverse", tensor(advice), tensor(items, words))
        expected = python_answer(server.socket, "reverse", advice, {items: sent})
        assert parse(got, kind).tolist() == expected.reshape(-1).tolist()


@pytest.mark.parametrize("kind", [ElementType.STRING, ElementType.BYTES])
@pytest.mark.parametrize("count", [0, 3])
def test_strings_go_there_and_back(program: Path, server: RunningServer, kind: ElementType, count: int) -> None:
    words = ["für", 'a "b" \\', "d\n"][:count]
    items, advice = TensorSpec("items", kind, (-1,)), TensorSpec("advice", kind, (-1,))
    got = answer(program, server.socket, "reverse", tensor(advice), tensor(items, words))
    assert got == (words[::-1] or [""])


def test_features_of_several_types_are_packed_one_after_another(program: Path, server: RunningServer) -> None:
    advice = TensorSpec("decision", ElementType.DOUBLE, ())
    cases: list[tuple[ElementType, list[float], ElementType]] = [
        (ElementType.UINT8, [1, 2], ElementType.INT64),
        (ElementType.DOUBLE, [0.5], ElementType.INT8),
    ]
    for x, values, y in cases:
        features: dict[TensorSpec, list[float]] = {
            TensorSpec("x", x, (len(values),)): values,
            TensorSpec("y", y, (2, 1)): [-3, 9],
        }
        words = [tensor(spec, elements) for spec, elements in features.items()]
        (got,) = answer(program, server.socket, "sum", tensor(advice), *words)
        assert [float(got)] == python_answer(server.socket, "sum", advice, features).tolist()


@pytest.mark.parametrize(
    ("policy", "items", "why"),
    [
        ("nowhere", "items:int64_t:1=5", '{"error":{"status":5,"message":"'),
        ('odd "name"\n', "items:int64_t:1=5", "odd"),
        ("raising", "items:int64_t:1=5", 'no \\"idea'),
        ("sum", "items:int64_t:1=5", '{"error":{"status":13,'),
        ("reverse", "items:int64_t:2=5,6", '{"error":{"status":'),
        ("reverse", "items:int128_t:1=5", "int128_t"),
    ],
)
def test_where_the_server_refuses_the_compilers_own_decision_stands(
    program: Path, server: RunningServer, policy: str, items: str, why: str
) -> None:
    done = ask(program, server.socket, policy, "decision:int64_t:1=7", items)
    assert (done.returncode, done.stdout) == (0, "7\n")
    assert why in done.stderr
    failed = ask(program, server.socket, policy, "decision:int64_t:1", items)
    assert (failed.returncode, failed.stdout) == (1, "")
    assert why in failed.stderr


def test_where_no_server_answers_the_compilers_own_decision_stands(
    program: Path, server_factory: ServerFactory, tmp_path: Path
) -> None:
    write_python(tmp_path / "policies", "dying", dying("1", after=0))
    path = server_factory(tmp_path / "policies").socket.removeprefix("socket:")
    # The server dies of the first question; nobody listens at its socket after that.
    for address in (str(tmp_path / "away"), path, path):
        decided = ask(program, address, "dying", "decision:int64_t:1=7", "items:int64_t:1=5")
        assert (decided.returncode, decided.stdout) == (0, "7\n")
        assert f"no advice from {address}: " in decided.stderr
    failed = ask(program, path, "dying", "decision:int64_t:1", "items:int64_t:1=5")
    assert (failed.returncode, failed.stdout) == (1, "")
    assert "refused" in failed.stderr

"""A C++ compiler in the manner of ML-Compiler-Bridge, with stubs that protoc generated, asks an unchanged server."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import RunningServer, running_server
from tests.repositories import answering, write_python
from tests.server.mlbridge.mlbridge_clients import PROTOS
from tests.server.mlbridge.mlbridge_native import built

_FIELDS = {
    "Int32": "i32",
    "Int64": "i64",
    "Float": "f32",
    "Double": "f64",
    "Bool": "flag",
    "Int32s": "i32s",
    "Int64s": "i64s",
    "Floats": "f32s",
    "Doubles": "f64s",
}

_PASSES = """
class Policy:
    def evaluate(self, observation, session):
        step = session.state["step"] = session.state.get("step", 0) + 1
        assert observation["state"].shape == (300,)
        return -1 if step == 35 else step * 1000 + int(observation["state"][299])
"""

_REGISTERS = """
class Policy:
    def evaluate(self, observation, session):
        step = session.state["step"] = session.state.get("step", 0) + 1
        registers, vectors = len(observation["registers.id"]), observation["registers.vectors.row_splits"][-1]
        interferences = observation["registers.interferences.row_splits"]
        elements = observation["registers.vectors.elements"].sum()
        assert session.context == observation["name"][0]
        return [step, len(session.context), registers, interferences[-1], vectors, int(elements * 2)]
"""


@pytest.fixture(scope="module")
def program() -> Path:
    return built()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    repository, folder = tmp_path_factory.mktemp("repository"), tmp_path_factory.mktemp("server")
    methods = ""
    for method, field in _FIELDS.items():
        write_python(repository, f"echo-{field}", answering(f"observation['{field}']"))
        methods += f'[mlbridge.methods."everytype.EveryType/ask{method}"]\npolicy = "echo-{field}"\n'
    write_python(repository, "passes", _PASSES)
    write_python(repository, "order", answering("list(range(observation['rdg'][0].count('node;')))[::-1]"))
    write_python(repository, "registers", _REGISTERS)
    (folder / "config.toml").write_text(f"""
        [mlbridge]
        protos = ["{PROTOS}"]
        [mlbridge.services."passsequence.PassSequence"]
        policy = "passes"
        bind.state = {{ field = "embedding", shape = [300] }}
        end_advice = -1
        [mlbridge.services."loopdistribution.LoopDistribution"]
        policy = "order"
        [mlbridge.services."registerallocation.RegisterAllocation"]
        policy = "registers"
        context = "name"
        start = "new"
        end = "result"
        {methods}
    """)
    with running_server(repository, folder, "--config", folder / "config.toml") as running:
        yield running


def compile_with(program: Path, server: RunningServer, what: str, number: int) -> "subprocess.Popen[str]":
    command = [str(program), what, server.grpc.removeprefix("grpc:"), str(number)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def advised(compiler: "subprocess.Popen[str]") -> list[float]:
    output, errors = compiler.communicate(timeout=60)
    assert (compiler.returncode, errors) == (0, "")
    return [float(number) for number in output.split()]


def test_every_scalar_and_vector_type_arrives_and_comes_back(program: Path, server: RunningServer) -> None:
    scalars = [-5, -(2**40) - 5, 0.5, 0.1, 1]
    vectors = [1, -2, 5, 2**40, -(2**41), 5 * 2**40, 0.25, -0.5, 1.25, 0.1, -0.2, 0.5]
    empty = [0]
    assert advised(compile_with(program, server, "types", 5)) == [*scalars, *vectors, *empty]


def passes(number: int) -> list[float]:
    return [*(step * 1000 + number for step in range(1, 35)), -1]


def test_five_compiles_one_after_another_start_their_episodes_anew(program: Path, server: RunningServer) -> None:
    for number in range(5):
        assert advised(compile_with(program, server, "passes", number)) == passes(number)


def test_eight_compiles_at_once_do_not_disturb_each_other(program: Path, server: RunningServer) -> None:
    compilers = [compile_with(program, server, "passes", number) for number in range(8)]
    assert [advised(compiler) for compiler in compilers] == [passes(number) for number in range(8)]


def test_a_string_in_and_a_list_of_any_length_out(program: Path, server: RunningServer) -> None:
    assert advised(compile_with(program, server, "loops", 4)) == [3, 2, 1, 0]
    assert advised(compile_with(program, server, "loops", 0)) == []


def test_nested_registers_arrive_whole_and_each_function_is_a_session(program: Path, server: RunningServer) -> None:
    count = 7
    vectors = sum(register % 3 + 1 for register in range(count))
    elements = sum(
        register + element / 2 for register in range(count) for row in range(register % 3 + 1) for element in range(row)
    )
    expected = [count, count * (count - 1) // 2, vectors, int(elements * 2)]
    steps = [[step, len(name), *expected] for name in ("first", "second") for step in (1, 2, 3)]
    assert advised(compile_with(program, server, "registers", count)) == [number for step in steps for number in step]

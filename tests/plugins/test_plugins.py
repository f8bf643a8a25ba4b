"""A part of every kind that another distribution registers is named and used like our own."""

import json
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import grpc
import pytest

from policybridge_client.connection import connect
from policybridge_core.errors import UnsupportedError
from policybridge_serdes import ElementType, PolicyReference, SessionOptions, Signature, TensorSpec, pack
from policybridge_server.mlbridge.pipes.frames import frame
from tests.client.compilers import start, write_source
from tests.conftest import RunningServer, command, running_server
from tests.plugins.building import install
from tests.repositories import answering, write_python

DISTRIBUTION = Path(__file__).parent / "distribution"
ECHO = Signature.of([TensorSpec("x", ElementType.INT64)], TensorSpec("advice", ElementType.INT64))


@pytest.fixture(scope="module", autouse=True)
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Install the distribution for this process and for those that it starts."""
    folder = install(DISTRIBUTION, tmp_path_factory.mktemp("plugins"))
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        patch.setenv("PYTHONPATH", str(folder), prepend=":")
        yield folder


@dataclass
class Serving:
    """A server that was told to use the distribution's parts, and its folder."""

    server: RunningServer
    folder: Path

    def policybridge(self, *arguments: object) -> str:
        """Run a command to its end in the folder, and give what it prints."""
        return said(*arguments, folder=self.folder)

    def address(self, scheme: str) -> str:
        """Give the address of one of the server's transports."""
        (found,) = (each for each in self.server.others if each.startswith(f"{scheme}:"))
        return found.partition(":")[2]

    def ask(self, policy: str, number: int, suffix: str = "") -> int:
        """Ask for one decision over gRPC."""
        connection = connect(self.server.grpc + suffix, timeout=60)
        try:
            session = connection.open(PolicyReference(policy), ECHO, SessionOptions())
            advice = session.evaluate(pack(ECHO.features, {"x": number}))
            session.close()
            return int(advice["advice"].item())
        finally:
            connection.close()


def said(*arguments: object, folder: Path) -> str:
    ended = subprocess.run(command(*arguments), capture_output=True, text=True, timeout=120, check=False, cwd=folder)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def write_policies(repository: Path) -> Path:
    write_python(repository, "echo", answering("observation['x']"))
    (repository / "constant" / "1").mkdir(parents=True)
    (repository / "constant" / "policy.toml").write_text('backend = "constant"\n')
    (repository / "constant" / "1" / "number.txt").write_text("41")
    declared = 'features = [{name = "x", type = "int64_t", shape = [1]}]'
    declared += ', advice = {name = "advice", type = "int64_t", shape = [1]}'
    consulted = f'[settings.models]\nm = {{file = "number.txt", backend = "constant", {declared}}}\n'
    consult = "class Policy:\n    def __init__(self, models):\n        self.model = models['m']\n"
    consult += "    def evaluate(self, observation, session):\n        return self.model(x=[1])[0] + 1\n"
    write_python(repository, "consulting", consult, consulted)
    (repository / "consulting" / "1" / "number.txt").write_text("41")
    return repository


def on_the_command_line(folder: Path) -> list[object]:
    services = [option for name in ("greeter", "policy") for option in ("--grpc-service", name)]
    pipe = f"{folder}/pipe:words,policy=echo,advice=int"
    ledger = ["--ledger", folder / "ledger", "--ledger-store", "lines"]
    return ["--transport", "line=127.0.0.1:0", "--pipe", pipe, *ledger, *services]


def in_the_file(folder: Path) -> list[object]:
    file = folder / "serve.toml"
    file.write_text(f"""
        transport = ["line=127.0.0.1:0"]
        grpc_service = ["greeter", "policy"]
        ledger = "{folder}/ledger"
        ledger_store = "lines"
        [[pipe]]
        base = "{folder}/pipe"
        format = "words"
        policy = "echo"
        advice = "int"
        """)
    return ["--config", file]


@pytest.fixture(scope="module", params=[on_the_command_line, in_the_file])
def serving(request: pytest.FixtureRequest) -> Iterator[Serving]:
    with TemporaryDirectory(prefix="pb-") as name:
        folder = Path(name)
        repository = write_policies(folder / "policies")
        with running_server(repository, folder, *request.param(folder)) as server:
            yield Serving(server, folder)


def test_a_transport_of_another_distribution_answers(serving: Serving) -> None:
    host, _, port = serving.address("line").rpartition(":")
    with socket.create_connection((host, int(port)), timeout=60) as line, line.makefile("rw") as file:
        file.write("echo 7\nconstant 7\nnone 7\n")
        file.flush()
        assert [file.readline() for _ in range(3)] == [
            "7\n",
            "41\n",
            "error: no policy 'none'; there are constant, consulting, echo\n",
        ]


def test_a_backend_of_another_distribution_serves_a_policy(serving: Serving) -> None:
    assert serving.ask("constant", 7) == 41


def test_a_python_policy_consults_a_model_by_a_backend_of_another_distribution(serving: Serving) -> None:
    assert serving.ask("consulting", 7) == 42


def test_a_serdes_of_another_distribution_carries_a_session(serving: Serving) -> None:
    assert serving.ask("echo", 7, ",serdes=reversed") == 7


def test_a_pipe_format_of_another_distribution_carries_a_compile(serving: Serving) -> None:
    base = serving.address("pipe")
    with Path(f"{base}.out").open("wb", 0) as questions, Path(f"{base}.in").open("rb", 0) as answers:
        questions.write(frame(b"x=12 y=3"))
        assert answers.read(10) == frame(b"12")


def test_a_grpc_service_of_another_distribution_answers_beside_those_that_are_named(serving: Serving) -> None:
    with grpc.insecure_channel(serving.server.grpc.removeprefix("grpc:")) as channel:
        greet = channel.unary_unary("/example.Greeter/Greet", bytes, bytes)
        assert greet(b"you", timeout=60) == b"hello you from constant, consulting, echo"
        with pytest.raises(grpc.RpcError) as refused:
            channel.unary_unary("/grpc.health.v1.Health/Check", bytes, bytes)(b"", timeout=60)
        assert refused.value.code() == grpc.StatusCode.UNIMPLEMENTED


def test_a_ledger_of_another_distribution_records_and_is_read(serving: Serving) -> None:
    connection = connect(serving.server.socket, timeout=60)
    session = connection.open(PolicyReference("constant"), ECHO, SessionOptions())
    session.evaluate(pack(ECHO.features, {"x": 1}))
    session.close()
    listing = ("sessions", "list", "--ledger", serving.folder / "ledger", "--ledger-store", "lines", "--json")
    serving.server.process.terminate()
    serving.server.process.wait(60)
    assert "constant" in {json.loads(line)["policy"]["name"] for line in serving.policybridge(*listing).splitlines()}


def test_an_export_of_another_distribution_writes_a_file() -> None:
    with TemporaryDirectory(prefix="pb-") as name:
        folder = Path(name)
        ledger = folder / "ledger.db"
        with running_server(write_policies(folder / "policies"), folder, "--ledger", ledger) as server:
            serving = Serving(server, folder)
            assert [serving.ask("echo", number) for number in (1, 2)] == [1, 2]
        written = said(
            "sessions", "export", "--ledger", ledger, "--format", "csv", "--to", "decisions.csv", folder=folder
        )
        assert written == "2 decisions written to decisions.csv\n"
        assert (folder / "decisions.csv").read_text().splitlines() == ["policy,step", "echo,1", "echo,1"]


def test_a_task_and_a_connection_of_another_distribution_compile(tmp_path: Path) -> None:
    source = write_source(tmp_path)
    host = ["run", "--policy", "p", "--server", "always:1", "--task", "inline-too", "--stats", "stats.json", "--"]
    said(*host, *start("ziglang"), "-Oz", "-c", source, folder=tmp_path)
    stats = json.loads((tmp_path / "stats.json").read_text())
    assert (stats["task"], stats["fallback"]) == ("inline-too", None)
    assert stats["decisions"] > 0


def test_a_contender_of_another_distribution_is_listed_and_measured(tmp_path: Path) -> None:
    assert "example-server" in said("bench", "--help", folder=tmp_path)
    short = ["--rounds", 1, "--seconds", 0.05, "--warm-up", 0.01, "--clients", 1, "--generators", "wire"]
    said("bench", "--contenders", "example-server", *short, "--json", "run.json", folder=tmp_path)
    assert "example-server" in (tmp_path / "run.json").read_text()


def test_a_scenario_of_another_distribution_runs(tmp_path: Path) -> None:
    assert "nothing was measured for 2 s" in said("bench", "nothing", "--seconds", 2, folder=tmp_path)


def test_a_command_of_another_distribution_is_listed_and_runs(tmp_path: Path) -> None:
    assert "greet" in said("--help", folder=tmp_path)
    assert said("greet", "you", folder=tmp_path) == "hello you\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--transport", "gone=1"], "unknown transport 'gone'; there are grpc, grpcio, http, line, pipe, socket"),
        (["--transport", "gone"], "the transport 'gone' is not NAME=ADDRESS"),
        (["--pipe", "base:gone,policy=p,advice=int"], "unknown pipe format 'gone'; there are bytes, json, words"),
        (["--config", "ledger_store = 'gone'"], "unknown ledger store 'gone'; there are lines, postgresql, sqlite"),
        (["--config", "grpc_service = ['gone']"], "unknown gRPC service 'gone'; there are channelz, greeter, health"),
        (["--ledger-store", "gone"], "'gone' (choose from"),
        (["--grpc-service", "gone"], "'gone' (choose from"),
    ],
)
def test_a_name_that_nobody_registered_is_refused_with_those_that_there_are(
    tmp_path: Path, arguments: list[str], message: str
) -> None:
    option, value = arguments
    if option == "--config":
        value = str(tmp_path / "serve.toml")
        Path(value).write_text(arguments[1])
    serve = ["serve", "--demo", "--grpc", "127.0.0.1:0", "--ledger", "ledger", option, value]
    ended = subprocess.run(command(*serve), capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert message in ended.stderr


def test_a_serdes_or_a_connection_that_nobody_registered_is_refused() -> None:
    with pytest.raises(Exception, match="unknown SerDes 'gone'; there are bitstream, json, protobuf, reversed"):
        connect("grpc:127.0.0.1:1,serdes=gone")
    always = connect("always:3")
    with pytest.raises(UnsupportedError):
        always.report_outcome("a", None)  # type: ignore[arg-type]

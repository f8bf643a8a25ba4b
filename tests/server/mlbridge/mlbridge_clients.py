"""What the tests of ML-Compiler-Bridge over gRPC share: the users' messages, configurations, raw calls."""

import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import grpc
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from tests.conftest import RunningServer, ServerFactory
from tests.repositories import write_python

PROTOS = Path(__file__).parent / "protos"

PASSES = "/passsequence.PassSequence/getAdvice"
REGISTERS = "/registerallocation.RegisterAllocation/getAdvice"

COUNTS = """
class Policy:
    def evaluate(self, observation, session):
        session.state["asked"] = session.state.get("asked", 0) + 1
        return [session.state["asked"]]
"""

OTHERS = "".join(
    f'[mlbridge.services."{name}"]\nserve = false\n'
    for name in ("everytype.EveryType", "loopdistribution.LoopDistribution")
)
"""Of the services of tests/foreign/protos, those that a test does not ask."""


def compiled(folder: Path) -> FileDescriptorSet:
    """Compile a folder of .proto files, without our server's code."""
    with TemporaryDirectory() as scratch:
        out = Path(scratch) / "set"
        files = sorted(str(file) for file in folder.rglob("*.proto"))
        command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{folder}", f"--descriptor_set_out={out}", *files]
        subprocess.run([*command, "--include_imports"], check=True)
        return FileDescriptorSet.FromString(out.read_bytes())


@cache
def _pool() -> DescriptorPool:
    pool = DescriptorPool()
    for file in compiled(PROTOS).file:
        pool.Add(file)
    return pool


def message(name: str, /, **fields: Any) -> Any:
    """Make a message of tests/foreign/protos by its full name."""
    return GetMessageClass(_pool().FindMessageTypeByName(name))(**fields)


def reply(name: str, data: bytes) -> Any:
    """Read a message of tests/foreign/protos."""
    return GetMessageClass(_pool().FindMessageTypeByName(name)).FromString(data)


def channel(server: RunningServer, **options: object) -> grpc.Channel:
    """Open a connection that no other channel of this process shares."""
    # Without limits of its own: what is refused here is refused by the server.
    given = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1), *options.items()]
    return grpc.insecure_channel(server.grpc.removeprefix("grpc:"), given)


def serving(factory: ServerFactory, repository: Path, toml: str, *arguments: object) -> RunningServer:
    """Serve ``repository`` with a configuration file that holds ``toml``."""
    repository.mkdir(exist_ok=True)
    file = repository.parent / "config.toml"
    file.write_text(toml)
    return factory(repository, "--config", file, *arguments)


def registers(connection: grpc.Channel, **fields: object) -> list[int]:
    request = message("registerallocation.Function", **fields).SerializeToString()
    return list(reply("registerallocation.Colours", connection.unary_unary(REGISTERS, None, None)(request)).colours)


def embedding(*numbers: float) -> bytes:
    data: bytes = message("passsequence.State", embedding=numbers).SerializeToString()
    return data


def ask(connection: grpc.Channel, request: bytes, timeout: float = 20, path: str = PASSES) -> int:
    data = connection.unary_unary(path, None, None)(request, timeout=timeout)
    action: int = reply("passsequence.Pass", data).action
    return action


def counting(server_factory: ServerFactory, folder: Path, more: str, *arguments: object) -> RunningServer:
    """Serve a policy that counts how often its session asked."""
    write_python(folder / "repository", "counts", COUNTS)
    toml = f'[mlbridge]\nprotos = ["{PROTOS}"]\npolicy = "counts"\n{more}\n{OTHERS}'
    return serving(server_factory, folder / "repository", toml, *arguments)


def make_fifo(folder: Path, name: str) -> Path:
    """Make a FIFO, by which a policy and a test wait for each other."""
    path = folder / name
    os.mkfifo(path)
    return path

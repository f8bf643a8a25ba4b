"""Loading the compiler's method from .proto files or a descriptor set, into a descriptor pool of its own."""

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from policybridge_core.errors import InvalidError, NotFoundError, PreconditionError


@dataclass(frozen=True)
class Method:
    """A unary method.

    Attributes:
        path: the gRPC path, ``/package.Service/Method``.
        request: the class of the request.
        reply: the class of the reply.

    """

    path: str
    request: type[Message]
    reply: type[Message]


def load_method(files: Sequence[Path | str], name: str) -> Method:
    """Find the method called ``package.Service/Method``.

    Args:
        files: .proto files or folders of them, or files that hold a descriptor set (``protoc --descriptor_set_out
            --include_imports``).
        name: the method's name.

    Raises:
        InvalidError: a file is neither of these, or the method streams.
        NotFoundError: there is no such file or method.
        PreconditionError: .proto files are given, and grpcio-tools is not installed.

    """
    pool = DescriptorPool()
    for file in _descriptors([Path(file) for file in files]).file:
        pool.Add(file)
    found = _find(pool, name.removeprefix("/"))
    if found.client_streaming or found.server_streaming:
        raise InvalidError(f"{name} streams; a step is one request and one reply")
    path = f"/{found.containing_service.full_name}/{found.name}"
    return Method(path, GetMessageClass(found.input_type), GetMessageClass(found.output_type))


def _find(pool: DescriptorPool, name: str) -> MethodDescriptor:
    service, _, method = name.rpartition("/")
    try:
        return pool.FindMethodByName(f"{service}.{method}")
    except KeyError:
        raise NotFoundError(f"no method {name!r}; a method is called package.Service/Method") from None


def _descriptors(files: Sequence[Path]) -> FileDescriptorSet:
    for file in files:
        if not file.exists():
            raise NotFoundError(f"{file} does not exist")
    merged = FileDescriptorSet()
    known: set[str] = set()
    protos = [file for file in files if file.is_dir() or file.suffix == ".proto"]
    sets = [_read(file) for file in files if file not in protos]
    for one in [*sets, *([_compiled(protos)] if protos else [])]:
        for described in one.file:
            if described.name not in known:
                known.add(described.name)
                merged.file.append(described)
    return merged


def _read(file: Path) -> FileDescriptorSet:
    try:
        return FileDescriptorSet.FromString(file.read_bytes())
    except DecodeError as error:
        raise InvalidError(f"{file} holds no descriptor set: {error}") from error


def _compiled(protos: Sequence[Path]) -> FileDescriptorSet:
    folders = [proto if proto.is_dir() else proto.parent for proto in protos]
    sources = [path for proto in protos for path in (sorted(proto.rglob("*.proto")) if proto.is_dir() else [proto])]
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "set"
        options = ["--include_imports", f"--descriptor_set_out={made}", *(f"-I{folder}" for folder in folders)]
        # In another process, because protoc writes its errors directly to file descriptor 2.
        words = [sys.executable, "-m", "grpc_tools.protoc", *options, *map(str, sources)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode and "No module named" in done.stderr:
            raise PreconditionError(
                "to compile .proto files needs the Python package grpcio-tools: pip install grpcio-tools; "
                "a descriptor set needs nothing"
            )
        if done.returncode:
            raise InvalidError(f"protoc: {done.stderr.strip()}")
        return _read(made)

"""Loads the compiler's gRPC method from .proto files or a descriptor set, each into its own descriptor pool."""

import functools
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from policybridge_core.errors import InvalidError, NotFoundError, PreconditionError


@dataclass(frozen=True)
class Method:
    """A unary method.

    It can be pickled, because environments may be made in other processes.

    Attributes:
        path: the gRPC path, ``/package.Service/Method``.
        request: the class of the request.
        reply: the class of the reply.
        descriptors: the serialized descriptor set from which the classes were made.

    """

    path: str
    request: type[Message]
    reply: type[Message]
    descriptors: bytes = field(repr=False)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the descriptors: the classes exist in this process only."""
        return _made, (self.descriptors, self.path)


class Reply:
    """The compiler's reply, in the ``info`` of a step. The message's fields are its attributes. It can be pickled.

    Args:
        method: the method that was called.
        message: the reply.

    """

    def __init__(self, method: Method, message: Message) -> None:
        self.message = message
        """The reply as a protobuf message."""
        self._method = method

    def __getattr__(self, name: str) -> Any:
        """Return a field of the message."""
        if name in ("message", "_method"):  # copying asks for these before they are set
            raise AttributeError(name)
        return getattr(self.message, name)

    def __eq__(self, other: object) -> bool:
        """Compare the serialized messages; replies from different processes can be equal."""
        if not isinstance(other, Reply):
            return NotImplemented
        return self.message.SerializeToString() == other.message.SerializeToString()

    # Not hashable, because the message can be changed.
    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        """Return the message's text."""
        return f"Reply({self.message!r})"

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the message's bytes and its method: the message's class exists in this process only."""
        return _replied, (self._method, self.message.SerializeToString())


def load_method(files: Sequence[Path | str], name: str) -> Method:
    """Find the method called ``package.Service/Method``.

    Args:
        files: .proto files or folders of them, or files that hold a descriptor set (``protoc --descriptor_set_out
            --include_imports``).
        name: the method's name.

    Raises:
        InvalidError: a file holds no descriptor set, a .proto file has errors, or the method streams.
        NotFoundError: there is no such file or method.
        PreconditionError: .proto files are given, but grpcio-tools is not installed.

    """
    return _made(_descriptors([Path(file) for file in files]).SerializeToString(), name)


@functools.lru_cache(maxsize=64)
def _made(descriptors: bytes, name: str) -> Method:
    pool = DescriptorPool()
    for file in FileDescriptorSet.FromString(descriptors).file:
        pool.Add(file)
    method = _find(pool, name.removeprefix("/"))
    if method.client_streaming or method.server_streaming:
        raise InvalidError(f"{name} streams; a step is one request and one reply")
    path = f"/{method.containing_service.full_name}/{method.name}"
    return Method(path, GetMessageClass(method.input_type), GetMessageClass(method.output_type), descriptors)


def _replied(method: Method, data: bytes) -> Reply:
    return Reply(method, method.reply.FromString(data))


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
                "a descriptor set needs no package"
            )
        if done.returncode:
            raise InvalidError(f"protoc: {done.stderr.strip()}")
        return _read(made)

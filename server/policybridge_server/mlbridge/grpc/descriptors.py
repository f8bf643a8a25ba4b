"""Finds users' services in folders of .proto files and in descriptor sets; each source has its own descriptor pool."""

import importlib.util
import logging
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from policybridge_core.errors import InvalidError, NotFoundError, PreconditionError

_LOG = logging.getLogger(__name__)

_OURS: Final = ("policybridge.", "grpc.health.", "grpc.reflection.", "grpc.channelz.", "inference.")
"""Packages of the gRPC port's own services."""


@dataclass(frozen=True)
class ForeignMethod:
    """A unary method of a user's service."""

    service: str
    name: str
    request: type[Message]
    reply: type[Message]

    def __str__(self) -> str:
        return f"{self.service}/{self.name}"


def load_methods(protos: Iterable[Path], descriptors: Iterable[Path]) -> list[ForeignMethod]:
    """Find every unary method of every service; streaming ones are left out, and logged.

    Raises:
        NotFoundError: a folder or file does not exist.
        InvalidError: a source cannot be compiled or read, or two have the same service.
        PreconditionError: there are .proto files, and the compiler for them is not installed.

    """
    folders = list(protos)
    methods: dict[str, ForeignMethod] = {}
    sources = [_compiled(folder, folders) for folder in folders] + [_read(file) for file in descriptors]
    for source, files, served in sources:
        for method in _methods(source, files, served):
            if str(method) in methods:
                raise InvalidError(f"{source}: {method} is in another of the sources too")
            methods[str(method)] = method
    return list(methods.values())


_Source = tuple[Path, FileDescriptorSet, set[str]]
"""The source of files, the files with their imports, and the names of the files with served services."""


def _compiled(folder: Path, folders: list[Path]) -> _Source:
    if not folder.is_dir():
        raise NotFoundError(f"[mlbridge] protos: there is no folder {folder}")
    names = sorted(str(file.relative_to(folder)) for file in folder.rglob("*.proto"))
    if not names:
        raise NotFoundError(f"[mlbridge] protos: there is no .proto file in {folder}")
    if importlib.util.find_spec("grpc_tools") is None:
        raise PreconditionError(
            "[mlbridge] protos: compiling .proto files needs the Python package 'grpcio-tools': "
            "pip install 'policybridge[mlbridge]'; or name descriptor sets (protoc --include_imports "
            "--descriptor_set_out=FILE) under `descriptors`"
        )
    # Files import each other by their paths in any of the folders.
    paths = [f"-I{path}" for path in [folder, *(other for other in folders if other != folder)]]
    with tempfile.TemporaryDirectory(prefix="policybridge-") as scratch:
        out = Path(scratch) / "set"
        command = [sys.executable, "-m", "grpc_tools.protoc", *paths, "--include_imports"]
        command += [f"--descriptor_set_out={out}", *(str(folder / name) for name in names)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise InvalidError(f"[mlbridge] protos: {folder} cannot be compiled: {done.stderr.strip()}")
        return folder, FileDescriptorSet.FromString(out.read_bytes()), set(names)


def _read(file: Path) -> _Source:
    try:
        files = FileDescriptorSet.FromString(file.read_bytes())
    except OSError as error:
        raise NotFoundError(f"[mlbridge] descriptors: {error}") from error
    except DecodeError as error:
        raise InvalidError(f"[mlbridge] descriptors: {file} is no descriptor set: {error}") from error
    return file, files, {each.name for each in files.file}


def _methods(source: Path, files: FileDescriptorSet, served: set[str]) -> Iterator[ForeignMethod]:
    pool = _pool(source, files)
    for name in sorted(served):
        for service in pool.FindFileByName(name).services_by_name.values():
            if service.full_name.startswith(_OURS):
                raise InvalidError(f"{source}: {service.full_name} is served by PolicyBridge itself")
            for method in service.methods:
                if _is_unary(method):
                    request, reply = GetMessageClass(method.input_type), GetMessageClass(method.output_type)
                    yield ForeignMethod(service.full_name, method.name, request, reply)


def _is_unary(method: MethodDescriptor) -> bool:
    unary = not (method.client_streaming or method.server_streaming)
    if not unary:
        _LOG.warning("%s streams; it is not served: ML-Compiler-Bridge's methods are unary", method.full_name)
    return unary


def _pool(source: Path, files: FileDescriptorSet) -> DescriptorPool:
    pool = DescriptorPool()
    waiting = {file.name: file for file in files.file}

    def add(file: FileDescriptorProto) -> None:
        for name in file.dependency:
            imported = waiting.pop(name, None)
            if imported is not None:
                add(imported)
        try:
            pool.Add(file)
        except TypeError as error:
            raise InvalidError(f"{source}: {error}; was it made with --include_imports?") from error

    while waiting:
        add(waiting.pop(next(iter(waiting))))
    return pool

"""Makes the page of the protocol over gRPC from the .proto files and their comments."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
    MethodDescriptorProto,
)
from grpc_tools import protoc

from policybridge_docs.links import ROOT
from policybridge_docs.markdown import code, prose, table

_HEAD: Final = """# The protocol over gRPC

Made from the .proto files in `proto/policybridge/v1`, which are the specification. Beside these services a server has
gRPC's own for health, reflection and channelz, and the [Open Inference Protocol](../open-inference-protocol.md). On
one machine the [Unix socket](socket.md) is faster.
"""

_FILES: Final = ("policy_service", "repository_service", "replication_service", "tensor")

# Field numbers in SourceCodeInfo.Location.path, where a field number and an index alternate.
_MESSAGES, _ENUMS, _SERVICES, _SYNTAX = 4, 5, 6, 12
_FIELDS, _NESTED, _METHODS, _VALUES = 2, 3, 2, 2

_Path = tuple[int, ...]


def page() -> str:
    """Give the page."""
    return "\n".join([_HEAD, *(line for file in _files() for line in _File(file).lines())])


def _files() -> Iterator[FileDescriptorProto]:
    with TemporaryDirectory() as folder:
        made = Path(folder) / "files"
        names = [f"policybridge/v1/{name}.proto" for name in _FILES]
        options = [f"-I{ROOT / 'proto'}", "--include_source_info", f"--descriptor_set_out={made}"]
        if protoc.main(["protoc", *options, *names]):
            raise ValueError("protoc refuses the .proto files; it says why above")
        files = {file.name: file for file in FileDescriptorSet.FromString(made.read_bytes()).file}
    yield from (files[name] for name in names)


class _File:
    """Gives the lines of one file."""

    def __init__(self, file: FileDescriptorProto) -> None:
        self._file = file
        self._said = {
            tuple(each.path): each.leading_comments or each.trailing_comments for each in file.source_code_info.location
        }

    def lines(self) -> Iterator[str]:
        """Give all lines."""
        yield from (f"## {Path(self._file.name).name}", "", *self._prose((_SYNTAX,)))
        for number, service in enumerate(self._file.service):
            here = (_SERVICES, number)
            yield from (f"### {service.name}", "", *self._prose(here))
            for place, method in enumerate(service.method):
                yield from (f"#### {service.name}.{method.name}", "", *_signature(method))
                yield from self._prose((*here, _METHODS, place))
        for number, message in enumerate(self._file.message_type):
            yield from self._message(message, (_MESSAGES, number), ())
        for number, enum in enumerate(self._file.enum_type):
            yield from self._enum(enum, (_ENUMS, number))

    def _message(self, message: DescriptorProto, here: _Path, above: Sequence[str]) -> Iterator[str]:
        if message.options.map_entry:
            return
        names = [*above, message.name]
        yield from (f"{'#' * (3 if not above else 4)} {'.'.join(names)}", "", *self._prose(here))
        fields = [
            (code(field.name), str(field.number), code(_type(field, message)), self._cell((*here, _FIELDS, place)))
            for place, field in enumerate(message.field)
        ]
        yield from table(("field", "number", "type", "meaning"), fields)
        for place, nested in enumerate(message.nested_type):
            yield from self._message(nested, (*here, _NESTED, place), names)

    def _enum(self, enum: EnumDescriptorProto, here: _Path) -> Iterator[str]:
        yield from (f"### {enum.name}", "", *self._prose(here))
        values = [
            (code(value.name), str(value.number), self._cell((*here, _VALUES, place)))
            for place, value in enumerate(enum.value)
        ]
        yield from table(("value", "number", "meaning"), values)

    def _prose(self, path: _Path) -> Iterator[str]:
        yield from prose(self._said.get(path, ""))

    def _cell(self, path: _Path) -> str:
        return " ".join(self._said.get(path, "").split())


def _signature(method: MethodDescriptorProto) -> Iterator[str]:
    asked, answered = (name.rsplit(".", 1)[1] for name in (method.input_type, method.output_type))
    sides = [
        f"{'stream ' if streams else ''}[{name}](#{name.lower()})"
        for name, streams in ((asked, method.client_streaming), (answered, method.server_streaming))
    ]
    yield from (f"{sides[0]} → {sides[1]}", "")


def _type(field: FieldDescriptorProto, message: DescriptorProto) -> str:
    name = (
        field.type_name.rsplit(".", 1)[-1] or FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()
    )
    for nested in message.nested_type:
        if nested.name == name and nested.options.map_entry:
            key, value = (_type(each, nested) for each in nested.field)
            return f"map<{key}, {value}>"
    repeated = field.label == FieldDescriptorProto.Label.LABEL_REPEATED
    return f"repeated {name}" if repeated else name

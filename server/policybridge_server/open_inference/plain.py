"""The protocol's messages as JSON objects: the fields by their names in the .proto, numbers as numbers."""

from collections.abc import Mapping
from typing import Any, cast

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message


def to_plain(message: Message) -> dict[str, Any]:
    """Give all fields of ``message``, also those with their default value; without messages that are not set.

    Protobuf's own JSON writes 64-bit numbers as strings; this protocol writes numbers.
    """
    fields = cast("Descriptor", message.DESCRIPTOR).fields
    return {field.name: _value(field, getattr(message, field.name)) for field in fields if _is_there(message, field)}


def _is_there(message: Message, field: FieldDescriptor) -> bool:
    return not field.has_presence or message.HasField(field.name)


def _value(field: FieldDescriptor, value: Any) -> Any:
    if isinstance(value, Message):
        return to_plain(value)
    if isinstance(value, Mapping):
        return {key: _single(field, each) for key, each in value.items()}
    if isinstance(value, str | bytes | bool | int | float):
        return _single(field, value)
    return [_single(field, each) for each in value]


def _single(field: FieldDescriptor, value: Any) -> Any:
    if isinstance(value, Message):
        return to_plain(value)
    return value if field.enum_type is None else field.enum_type.values_by_number[value].name

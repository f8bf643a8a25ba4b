"""The fields of a request that give its session, the start and end of sessions, and the name of the module."""

from collections.abc import Callable
from operator import attrgetter
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from policybridge_core.errors import InvalidError
from policybridge_server.mlbridge.grpc.columns import repeats
from policybridge_server.mlbridge.grpc.config import ConditionConfig

Condition = Callable[[Message], bool]


def scalar(request: Descriptor, path: str, what: str, *, text: bool = False) -> Callable[[Message], Any]:
    """Return a reader of the scalar field ``path``; ``what`` is the option that names it.

    Raises:
        InvalidError: there is no such field, or it is not a scalar (not a string, for ``text``).

    """
    field = _field(request, path, what)
    wanted = field.message_type is None and not repeats(field)
    if not wanted or (text and field.type != FieldDescriptor.TYPE_STRING):
        kind = "a string" if text else "one number or string"
        raise InvalidError(f"{what} = {path!r}: {field.full_name} is not {kind}")
    return attrgetter(path)


def condition(request: Descriptor, config: str | ConditionConfig | None, what: str) -> Condition | None:
    """Return the test of ``config``; ``None`` for none.

    Raises:
        InvalidError: it names no field of the request, or one that cannot equal the value.

    """
    if config is None:
        return None
    if isinstance(config, str):
        config = ConditionConfig(config)
    if config.equals is None:
        _field(request, config.field, what)
        # Of a repeated field: whether it is empty.
        read = attrgetter(config.field)
        return lambda message: bool(read(message))
    get, wanted = scalar(request, config.field, what), config.equals
    if isinstance(wanted, str) != (_field(request, config.field, what).type == FieldDescriptor.TYPE_STRING):
        raise InvalidError(f"{what}: {config.field} never equals {wanted!r}: it is of another type")
    return lambda message: bool(get(message) == wanted)


def _field(request: Descriptor, path: str, what: str) -> FieldDescriptor:
    message: Descriptor | None = request
    field: FieldDescriptor | None = None
    for name in path.split("."):
        if field is not None and repeats(field):
            raise InvalidError(f"{what} = {path!r}: {field.full_name} is repeated, so that {name!r} is many fields")
        field = None if message is None else message.fields_by_name.get(name)
        if field is None:
            raise InvalidError(f"{what} = {path!r}: {request.full_name} has no such field")
        message = field.message_type
    if field is None or (field.message_type is not None and not repeats(field)):
        raise InvalidError(f"{what} = {path!r} is a message, not a field with a value")
    return field

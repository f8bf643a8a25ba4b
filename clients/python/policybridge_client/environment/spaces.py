"""The Gymnasium space of the numbers in a reply, and reading the observation from a reply."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final, cast

import gymnasium
import numpy as np
import numpy.typing as npt
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from policybridge_core.errors import InvalidError

Observation = dict[str, npt.NDArray[Any]]

_DTYPES = {
    FieldDescriptor.CPPTYPE_INT32: np.int32,
    FieldDescriptor.CPPTYPE_INT64: np.int64,
    FieldDescriptor.CPPTYPE_UINT32: np.uint32,
    FieldDescriptor.CPPTYPE_UINT64: np.uint64,
    FieldDescriptor.CPPTYPE_ENUM: np.int32,
    FieldDescriptor.CPPTYPE_FLOAT: np.float32,
    FieldDescriptor.CPPTYPE_DOUBLE: np.float64,
    FieldDescriptor.CPPTYPE_BOOL: np.int8,
}


@dataclass(frozen=True)
class ReplyField:
    """A field of numbers, by its name; ``detail/remaining`` is a field of the nested message ``detail``.

    Attributes:
        size: the number of numbers; ``None`` if it varies.

    """

    name: str
    dtype: np.dtype[Any]
    flag: bool
    size: int | None

    @property
    def space(self) -> gymnasium.Space[Any]:
        """A Box of shape [size], or a Sequence of single numbers, which stacks them to shape [n, 1]."""
        if self.size is None:
            return gymnasium.spaces.Sequence(self._box((1,)), stack=True)
        return self._box((self.size,))

    def _box(self, shape: tuple[int, ...]) -> gymnasium.spaces.Box:
        if self.dtype.kind == "f":
            return gymnasium.spaces.Box(-np.inf, np.inf, shape, self.dtype.type)
        limits = np.iinfo(self.dtype)
        low, high = (0, 1) if self.flag else (limits.min, limits.max)
        return gymnasium.spaces.Box(low, high, shape, self.dtype.type)

    def read(self, reply: Message) -> npt.NDArray[Any]:
        """Return the field's numbers.

        Raises:
            InvalidError: the number of numbers is not that of the space.

        """
        value = reduce(getattr, self.name.split("/"), reply)
        array: npt.NDArray[Any] = np.atleast_1d(np.asarray(value, self.dtype))
        if self.size not in (None, array.size):
            raise InvalidError(f"{self.name} has {array.size} numbers; its size was given as {self.size}")
        return array if self.size is not None else array.reshape(-1, 1)


class ReplySpace:
    """All numbers of a reply and its nested messages, without strings and lists of messages.

    The names of nested fields have slashes: PyTorch, and so Stable-Baselines3, refuses names with dots.

    Args:
        reply: an example of a reply.
        sizes: lengths of the repeated fields of constant length.

    Raises:
        InvalidError: the reply has no numbers, or a size is given for a field that is not repeated.

    """

    def __init__(self, reply: Message, sizes: Mapping[str, int]) -> None:
        name = reply.DESCRIPTOR.full_name
        self._fields = list(_fields(cast("Descriptor", reply.DESCRIPTOR), "", sizes, ()))
        if not self._fields:
            raise InvalidError(f"{name} has no field of numbers; give observe and observation_space")
        unknown = sizes.keys() - {field.name for field in self._fields}
        if unknown:
            raise InvalidError(f"{name} has no field of numbers called {', '.join(sorted(unknown))}")
        self.space = gymnasium.spaces.Dict({field.name: field.space for field in self._fields})

    def read(self, reply: Message) -> Observation:
        """Return the observation in a reply."""
        return {field.name: field.read(reply) for field in self._fields}


def _fields(
    described: Descriptor, prefix: str, sizes: Mapping[str, int], above: tuple[Descriptor, ...]
) -> Iterator[ReplyField]:
    for field in described.fields:
        name = prefix + field.name
        if field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
            # Skip a message type within itself: the recursion would not end.
            inner = cast("Descriptor", field.message_type)
            if not _repeats(field) and inner not in (*above, described):
                yield from _fields(inner, f"{name}/", sizes, (*above, described))
        elif field.cpp_type in _DTYPES:
            size = sizes.get(name) if _repeats(field) else 1
            flag = field.cpp_type == FieldDescriptor.CPPTYPE_BOOL
            yield ReplyField(name, np.dtype(_DTYPES[field.cpp_type]), flag, size)


_REPEATED: Final = 3
"""The label of repeated fields in descriptor.proto."""


def _repeats(field: FieldDescriptor) -> bool:
    repeated = getattr(field, "is_repeated", None)
    if repeated is None:  # protobuf 5 has only the label, and protobuf 7 warns of it
        return bool(getattr(field, "label", None) == _REPEATED)
    return bool(repeated)


def field_setter(request: Message, name: str | None) -> Callable[[Message, Any], None]:
    """Make a function that writes an action into field ``name`` of a request, by default its first field of numbers.

    Raises:
        InvalidError: there is no such field of numbers.

    """
    described = cast("Descriptor", request.DESCRIPTOR)
    fields = {field.name: field for field in described.fields}
    chosen = fields.get(name) if name else next(iter(described.fields), None)
    if chosen is None or chosen.cpp_type not in _DTYPES:
        raise InvalidError(f"{described.full_name} has no field of numbers {name or ''} for the action")
    key, repeated = chosen.name, _repeats(chosen)
    dtype = np.dtype(_DTYPES[chosen.cpp_type])

    def write(message: Message, action: Any) -> None:
        numbers = np.asarray(action).reshape(-1).astype(dtype).tolist()
        if repeated:
            getattr(message, key).extend(numbers)
        else:
            (number,) = numbers
            setattr(message, key, bool(number) if chosen.cpp_type == FieldDescriptor.CPPTYPE_BOOL else number)

    return write

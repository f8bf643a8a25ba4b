"""From advice to the reply's bytes: only its first declared field is read by ML-Compiler-Bridge."""

from collections.abc import Callable
from typing import Any, Final, cast

import numpy as np
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from policybridge_core.errors import InvalidError, PolicyFailedError, TooLargeError
from policybridge_serdes import ElementType, TensorSpec, Values
from policybridge_serdes.specs import VARIES
from policybridge_server.mlbridge.grpc.columns import repeats
from policybridge_server.mlbridge.grpc.config import Number

MAX_REPLY: Final = 4 << 20
"""Bytes that a gRPC client takes by default; ML-Compiler-Bridge's does not ask for more."""

_SCALARS: Final = {
    FieldDescriptor.CPPTYPE_INT32: ElementType.INT32,
    FieldDescriptor.CPPTYPE_INT64: ElementType.INT64,
    FieldDescriptor.CPPTYPE_FLOAT: ElementType.FLOAT,
    FieldDescriptor.CPPTYPE_DOUBLE: ElementType.DOUBLE,
    FieldDescriptor.CPPTYPE_BOOL: ElementType.BOOL,
}
_VECTORS: Final = {kind: spec for kind, spec in _SCALARS.items() if spec is not ElementType.BOOL}

_FLOAT_MAX: Final = float(np.finfo(np.float32).max)


class UnreadableReplyError(InvalidError):
    """ML-Compiler-Bridge's client cannot read any reply of a method."""


class Replies:
    """Writes the replies of one method.

    Raises:
        UnreadableReplyError: the client could not read the reply's first field.

    """

    def __init__(self, reply: type[Message]) -> None:
        self._message = reply
        self._field = _first_field(cast("Descriptor", reply.DESCRIPTOR))
        self._name = self._field.name
        self._repeated = repeats(self._field)
        self._type = _SCALARS[self._field.cpp_type]

    @property
    def spec(self) -> TensorSpec:
        """The advice to ask of a policy that declares none."""
        return TensorSpec(self._name, self._type, (VARIES,) if self._repeated else (1,))

    def __str__(self) -> str:
        return f"the reply's {'repeated ' if self._repeated else ''}{self._type.value} {self._field.full_name}"

    def writer(self, advice: TensorSpec) -> Callable[[Values], tuple[bytes, list[Any]]]:
        """Return a function that makes a reply, and the numbers in it, from advice of this spec.

        Raises:
            InvalidError: such advice does not fit the field.

        """
        if not self._takes(advice.type) or (advice.fixed and advice.count != 1 and not self._repeated):
            raise InvalidError(f"the policy gives {advice}; {self} cannot hold that")
        name, varies = advice.name, not advice.fixed
        # protobuf takes a bool for no number.
        as_number = advice.type is ElementType.BOOL and self._type is not ElementType.BOOL

        def write(values: Values) -> tuple[bytes, list[Any]]:
            array = values[name][0] if varies else values[name]
            numbers = (array.view(np.uint8) if as_number else array).reshape(-1).tolist()
            return self.encode(numbers), numbers

        return write

    def _takes(self, kind: ElementType) -> bool:
        if kind.is_text:
            return False
        return self._type.dtype.kind == "f" or kind.dtype.kind in "biu"

    def encode(self, numbers: list[Any]) -> bytes:
        """Write a reply that holds ``numbers``.

        Raises:
            PolicyFailedError: they do not fit the field.
            TooLargeError: the reply is larger than the client accepts.

        """
        if self._type is ElementType.FLOAT or self._type is ElementType.BOOL:
            self._check_range(numbers)
        reply = self._message()
        try:
            if self._repeated:
                getattr(reply, self._name).extend(numbers)
            else:
                (number,) = numbers
                setattr(reply, self._name, number)
        except (TypeError, ValueError) as error:
            raise PolicyFailedError(f"{self} cannot hold the advice {numbers!r:.100}: {error}") from error
        data = reply.SerializeToString()
        if len(data) > MAX_REPLY:
            raise TooLargeError(f"the advice takes {len(data)} bytes; the client takes at most {MAX_REPLY}")
        return data

    def fallback(self, advice: Number | list[Number]) -> bytes:
        """Write the reply for a failure.

        Raises:
            InvalidError: the configured ``advice`` does not fit the field.

        """
        try:
            return self.encode(advice if isinstance(advice, list) else [advice])
        except (PolicyFailedError, TooLargeError) as error:
            raise InvalidError(f"fallback: {error}") from error

    def _check_range(self, numbers: list[Any]) -> None:
        for number in numbers:
            is_bool = self._type is ElementType.BOOL
            if (is_bool and number not in (0, 1)) or (not is_bool and _FLOAT_MAX < abs(number) < float("inf")):
                raise PolicyFailedError(f"{self} cannot hold the advice {number}")


def _first_field(reply: Descriptor) -> FieldDescriptor:
    if not reply.fields:
        raise UnreadableReplyError(f"the client reads the first field of {reply.full_name}, which has none")
    field: FieldDescriptor = reply.fields[0]
    if field.cpp_type not in (_VECTORS if repeats(field) else _SCALARS):
        raise UnreadableReplyError(
            f"the client cannot read {field.full_name}, the first declared field of the reply: it reads int32, int64, "
            "float, double and bool, and repeated int32, int64, float and double"
        )
    return field

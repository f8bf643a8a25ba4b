"""Turns requests of one method into observations; how is worked out when the server starts."""

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from struct import Struct
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

from policybridge_core.errors import InvalidError
from policybridge_serdes import ElementType, Layout, TensorSpec, Values
from policybridge_serdes.values import Row
from policybridge_server.mlbridge.grpc.columns import Column, Level
from policybridge_server.mlbridge.grpc.config import FeatureConfig
from policybridge_server.mlbridge.grpc.shaping import Shaper

_PACKED: Final = {
    ElementType.INT32: "i",
    ElementType.INT64: "q",
    ElementType.UINT32: "I",
    ElementType.UINT64: "Q",
    ElementType.FLOAT: "f",
    ElementType.DOUBLE: "d",
    ElementType.BOOL: "?",
}

_Make = Callable[[list[Any]], Any]
"""Takes one feature out of the values of all columns."""

_Flatten = Callable[[Message, Mapping[str, npt.NDArray[Any]]], Row]
"""Makes an observation of a request, and of the numbers of its large fields by name."""


class Flattener:
    """Makes observations out of requests.

    Args:
        request: the messages' type.
        bind: for a feature, the field that it is made of, and how.
        limit: largest feature that padding may make, in bytes.

    Attributes:
        layout: of the observations: fields by their dotted names, or the names that they are bound to.

    Raises:
        InvalidError: a bound field does not exist or cannot be converted, or there is no field.

    """

    def __init__(self, request: Descriptor, bind: Mapping[str, str | FeatureConfig], limit: int) -> None:
        self._level = Level(request)
        columns = self._level.columns
        if not columns:
            raise InvalidError(f"{request.full_name} has no field that a policy could be given")
        bound = _bound(request, columns, bind)
        features: list[tuple[TensorSpec, _Make]] = []
        for index, column in enumerate(columns):
            for name, config in bound.get(column.path, [(column.path, FeatureConfig(column.path))]):
                features.append(_feature(Shaper(name, column, config, limit), columns, index))
        self.layout = Layout.of(spec for spec, _ in features)
        self.flatten: _Flatten = self._packer(columns, features) or self._recorder(features)

    def _packer(self, columns: Sequence[Column], features: list[tuple[TensorSpec, _Make]]) -> Any:
        """Pack numbers that need no change straight into the record's bytes."""
        plain = all(not column.repeats and column.type in _PACKED for column in columns)
        if not plain or any(not isinstance(make, itemgetter) for _, make in features):
            return None
        pack = Struct("<" + "".join(_PACKED[spec.type] for spec, _ in features)).pack
        read = self._level.read
        makes = [make for _, make in features]
        if _each(makes, list(range(len(columns)))) == list(range(len(columns))):
            return lambda message, _: pack(*read(message))
        return lambda message, _: pack(*_each(makes, read(message)))

    def _recorder(self, features: list[tuple[TensorSpec, _Make]]) -> _Flatten:
        dtype, read = self.layout.dtype, self._level.read
        makes = [make for _, make in features]

        def record(message: Message, large: Mapping[str, npt.NDArray[Any]]) -> Row:
            made: Values = np.empty(1, dtype)
            made[0] = tuple(_each(makes, read(message, large)))
            return made

        return record


def _each(makes: list[_Make], values: list[Any]) -> list[Any]:
    return [make(values) for make in makes]


_Bound = dict[str, list[tuple[str, FeatureConfig]]]


def _bound(request: Descriptor, columns: Sequence[Column], bind: Mapping[str, str | FeatureConfig]) -> _Bound:
    paths = {column.path for column in columns}
    bound: _Bound = {}
    for name, what in bind.items():
        config = FeatureConfig(what) if isinstance(what, str) else what
        if config.field not in paths:
            known = ", ".join(column.path for column in columns)
            raise InvalidError(f"bind {name!r}: {request.full_name} has no field {config.field!r}; it has {known}")
        bound.setdefault(config.field, []).append((name, config))
    return bound


def _feature(shaper: Shaper, columns: Sequence[Column], index: int) -> tuple[TensorSpec, _Make]:
    column = columns[index]
    if shaper.changes:
        places = {each.path: place for place, each in enumerate(columns)}
        splits = [places[path] for path in column.splits]
        return shaper.spec, lambda values: shaper(values[index], [values[place] for place in splits])
    if column.type.is_text and not column.repeats:
        return shaper.spec, lambda values: _text(values[index])
    return shaper.spec, itemgetter(index)


def _text(value: str | bytes) -> Any:
    array = np.empty(1, object)
    array[0] = value
    return array

"""A message as columns: each leaf field by its dotted path, with the elements of all repeated parents end to end.

A field below ``k`` repeated fields is ``k`` levels deep. One level gives a vector. Each further level gives row splits:
the column ``PATH.row_splits`` has the begin and end of each row's items, counted over all rows before it.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from policybridge_serdes import ElementType

_LOG = logging.getLogger(__name__)

ROW_SPLITS: Final = "row_splits"

_PIECE: Final = 1 << 16
"""Numbers that are copied at once. Each is an object of its own meanwhile, and no other thread runs."""

_NONE: Final[Mapping[str, npt.NDArray[Any]]] = {}

_TYPES: Final = {
    FieldDescriptor.CPPTYPE_INT32: ElementType.INT32,
    FieldDescriptor.CPPTYPE_INT64: ElementType.INT64,
    FieldDescriptor.CPPTYPE_UINT32: ElementType.UINT32,
    FieldDescriptor.CPPTYPE_UINT64: ElementType.UINT64,
    FieldDescriptor.CPPTYPE_FLOAT: ElementType.FLOAT,
    FieldDescriptor.CPPTYPE_DOUBLE: ElementType.DOUBLE,
    FieldDescriptor.CPPTYPE_BOOL: ElementType.BOOL,
    FieldDescriptor.CPPTYPE_ENUM: ElementType.INT32,
}


@dataclass(frozen=True)
class Column:
    """One leaf, or the row splits of one level.

    Attributes:
        path: the column's dotted name.
        type: the element type.
        splits: the paths of the row splits between its levels, outermost first.
        repeats: whether it is a vector; otherwise a scalar, at level 0.

    """

    path: str
    type: ElementType
    splits: tuple[str, ...] = ()
    repeats: bool = True

    @property
    def levels(self) -> int:
        """How many fields repeat on its path."""
        return len(self.splits) + 1 if self.repeats else 0


class _Entry(NamedTuple):
    """An entry of a map field, as the message that it is on the wire."""

    key: Any
    value: Any


class _Leaf(NamedTuple):
    get: Callable[[Any], Any]
    type: ElementType

    def array(self, values: Any) -> npt.NDArray[Any]:
        """Copy a repeated field."""
        return _texts(values) if self.type.is_text else _numbers(values, self.type.dtype)

    def gather(self, rows: Sequence[Any]) -> npt.NDArray[Any]:
        """Take the scalar of each row."""
        values = map(self.get, rows)
        return _texts(list(values)) if self.type.is_text else np.fromiter(values, self.type.dtype, len(rows))


class _Branch(NamedTuple):
    rows: Callable[[Any], Sequence[Any]]
    level: "Level"


class Level:
    """The fields of a message that no field between repeats: the request itself, or a message that repeats in it.

    Attributes:
        columns: the columns of `read`, in its order; those of deeper levels come last.

    """

    def __init__(self, descriptor: Descriptor, prefix: str = "", splits: tuple[str, ...] | None = None) -> None:
        self._splits = splits
        self._scalars: list[tuple[str, _Leaf]] = []
        self._vectors: list[tuple[str, _Leaf]] = []
        self._branches: list[tuple[str, _Branch]] = []
        self._collect(descriptor, "", prefix, (descriptor.full_name,))
        self._read_scalars = _getters([path.removeprefix(prefix) for path, _ in self._scalars])
        self.columns = list(self._columns())

    def _collect(self, descriptor: Descriptor, inner: str, prefix: str, above: tuple[str, ...]) -> None:
        for field in descriptor.fields:
            name, path = inner + field.name, prefix + inner + field.name
            message = field.message_type
            if message is None:
                leaf = _Leaf(attrgetter(name), element_type(field))
                (self._vectors if repeats(field) else self._scalars).append((path, leaf))
            elif message.full_name in above or _contains_itself(message):
                _LOG.warning("%s contains itself: %s is not offered to policies", message.full_name, path)
            elif repeats(field):
                rows = _map_rows(name) if message.GetOptions().map_entry else attrgetter(name)
                splits = () if self._splits is None else (*self._splits, f"{path}.{ROW_SPLITS}")
                self._branches.append((path, _Branch(rows, Level(message, f"{path}.", splits))))
            else:
                self._collect(message, f"{name}.", prefix, (*above, message.full_name))

    def _columns(self) -> Iterable[Column]:
        top = self._splits is None
        splits = self._splits or ()
        for path, leaf in self._scalars:
            yield Column(path, leaf.type, splits, repeats=not top)
        for path, leaf in self._vectors:
            own = splits if top else (*splits, f"{path}.{ROW_SPLITS}")
            yield Column(path, leaf.type, own)
            if not top:
                yield Column(own[-1], ElementType.INT64)
        for path, branch in self._branches:
            if not top:
                yield Column(f"{path}.{ROW_SPLITS}", ElementType.INT64)
            yield from branch.level.columns

    def read(self, message: Message, large: Mapping[str, npt.NDArray[Any]] = _NONE) -> list[Any]:
        """Give the values of a request: Python scalars and arrays; ``large`` has vectors that the message lacks."""
        values = [*self._read_scalars(message)]
        for path, leaf in self._vectors:
            values.append(large[path] if path in large else leaf.array(leaf.get(message)))
        for _, branch in self._branches:
            rows = branch.rows(message)
            branch.level.read_rows(rows, values)
        return values

    def read_rows(self, rows: Sequence[Any], values: list[Any]) -> None:
        """Append the columns of messages that repeat."""
        for _, leaf in self._scalars:
            values.append(leaf.gather(rows))
        for _, leaf in self._vectors:
            parts = [leaf.array(leaf.get(row)) for row in rows]
            values += (_end_to_end(parts, leaf.type.dtype), _row_splits(parts))
        for _, branch in self._branches:
            lists = [branch.rows(row) for row in rows]
            splits = _row_splits(lists)
            values.append(splits)
            branch.level.read_rows([row for each in lists for row in each], values)


def repeats(field: FieldDescriptor) -> bool:
    """Whether ``field`` is repeated; protobuf 5 has another property for it than later ones."""
    if hasattr(field, "is_repeated"):
        return bool(field.is_repeated)
    return bool(getattr(field, "label", None) == FieldDescriptor.LABEL_REPEATED)


def _contains_itself(message: Descriptor, above: tuple[str, ...] = ()) -> bool:
    if message.full_name in above:
        return True
    inner = (*above, message.full_name)
    return any(_contains_itself(field.message_type, inner) for field in message.fields if field.message_type)


def element_type(field: FieldDescriptor) -> ElementType:
    """Give the element type of a field that is no message."""
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return ElementType.BYTES if field.type == FieldDescriptor.TYPE_BYTES else ElementType.STRING
    return _TYPES[field.cpp_type]


def _getters(names: list[str]) -> Callable[[Any], Sequence[Any]]:
    if len(names) > 1:
        return attrgetter(*names)
    get = attrgetter(names[0]) if names else None
    return lambda message: () if get is None else (get(message),)


def _map_rows(name: str) -> Callable[[Any], Sequence[Any]]:
    get = attrgetter(name)

    def rows(message: Any) -> Sequence[Any]:
        # Sorted by key: a map has no order on the wire, and the same map must give the same advice.
        entries = get(message)
        return [_Entry(key, entries[key]) for key in sorted(entries)]

    return rows


def _numbers(values: Sequence[Any], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    if len(values) <= _PIECE:
        return np.array(values, dtype)
    made = np.empty(len(values), dtype)
    for start in range(0, len(values), _PIECE):
        made[start : start + _PIECE] = values[start : start + _PIECE]
    return made


def _texts(values: Sequence[Any]) -> npt.NDArray[Any]:
    array = np.empty(len(values), object)
    array[:] = values
    return array


def _end_to_end(parts: Sequence[npt.NDArray[Any]], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    return np.concatenate(parts) if parts else np.empty(0, dtype)


def _row_splits(parts: Sequence[Any]) -> npt.NDArray[np.int64]:
    splits = np.zeros(len(parts) + 1, np.int64)
    np.cumsum([len(part) for part in parts], out=splits[1:])
    return splits

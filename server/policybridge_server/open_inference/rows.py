"""From the inputs' payloads to the engine's rows: one for each observation of a request."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from policybridge_serdes import ElementType, Layout, Values
from policybridge_serdes.bitstream import PackedCodec
from policybridge_serdes.checks import check_bool
from policybridge_serdes.limits import Buffer
from policybridge_serdes.values import Row, packed
from policybridge_server.grpc.error_details import FieldError
from policybridge_server.open_inference.datatypes import elements_of
from policybridge_server.open_inference.inputs import Shape


class Rows(Protocol):
    """Makes the rows of requests of one form."""

    def make(self, payloads: Sequence[Buffer]) -> list[Row]:
        """Give the rows.

        Raises:
            InvalidError: a payload is not that of its input.

        """


class PackedRow:
    """One observation of fixed tensors: its bytes are the payloads, one after the other."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._sizes = [spec.size for spec in layout.specs]
        self._codec = PackedCodec(layout)

    def make(self, payloads: Sequence[Buffer]) -> list[Row]:
        """Give the one row."""
        _check_sizes(self._layout, payloads, self._sizes)
        return [self._codec.decode(packed(payloads, self._layout.size))]


def _check_sizes(layout: Layout, payloads: Sequence[Buffer], sizes: Sequence[int]) -> None:
    if list(map(len, payloads)) == sizes:
        return
    for spec, payload, size in zip(layout.specs, payloads, sizes, strict=True):
        if len(payload) != size:
            often = "" if size == spec.size else f", {size // spec.size} times,"
            raise FieldError(f"inputs[{spec.name}]", f"{spec}{often} takes {size} bytes; {len(payload)} came")


class PackedRows:
    """A batch of fixed tensors: each payload is a column of the records."""

    def __init__(self, layout: Layout, count: int) -> None:
        self._layout = layout
        self._count = count
        self._sizes = [spec.size * count for spec in layout.specs]
        self._columns = [(spec.name, spec.type.dtype, (count, *spec.shape)) for spec in layout.specs]
        self._bools = [(index, spec) for index, spec in enumerate(layout.specs) if spec.type is ElementType.BOOL]

    def make(self, payloads: Sequence[Buffer]) -> list[Row]:
        """Give the rows."""
        # Before memory is allocated for the declared shape.
        _check_sizes(self._layout, payloads, self._sizes)
        for index, spec in self._bools:
            check_bool(spec, np.frombuffer(payloads[index], np.uint8))
        values: Values = np.empty(self._count, self._layout.dtype)
        for (name, dtype, shape), payload in zip(self._columns, payloads, strict=True):
            values[name] = np.frombuffer(payload, dtype).reshape(shape)
        return [values[row : row + 1] for row in range(self._count)]


@dataclass(frozen=True)
class VaryingRows:
    """Tensors that vary, or hold texts: an input at a time.

    Attributes:
        layout: of one observation.
        shapes: the inputs', of one observation each.
        count: of observations.

    """

    layout: Layout
    shapes: Sequence[Shape]
    count: int

    def make(self, payloads: Sequence[Buffer]) -> list[Row]:
        """Give the rows."""
        inputs = zip(self.layout.specs, self.shapes, payloads, strict=True)
        # All of them before memory is allocated for the declared shapes.
        read = [(spec, elements_of(spec, payload, (self.count, *shape))) for spec, shape, payload in inputs]
        values: Values = np.zeros(self.count, self.layout.dtype)
        for spec, elements in read:
            if spec.fixed:
                values[spec.name] = elements
            else:
                for row in range(self.count):
                    values[spec.name][row] = elements[row]
        return [values[row : row + 1] for row in range(self.count)]

"""From a compiler's messages to the policy's inputs: decides types and shapes, and binds the session to them."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from policybridge_core.errors import InvalidError
from policybridge_serdes import VARIES, ElementType, Layout, TensorSpec, Values, tensor
from policybridge_serdes.values import Row, fit, shape_fits
from policybridge_server.mlbridge.pipes.formats import ParsedMessage


class ObservationReader:
    """Turns one compile's messages into rows of the layout that its session is bound to.

    A feature's type is the configuration's, else the policy's, else the message's. Its shape is the policy's
    if that has a −1, else the message's. Of a feature that the policy does not declare, a size that changes becomes −1.
    Most compilers always send the same features; then the session is bound once.

    Args:
        kinds: element types by feature, from the configuration.
        declared: the policy's inputs, by the compiler's names for them.
        bind: binds the session to a layout; its errors reach the caller of `row`.

    """

    def __init__(
        self, kinds: Mapping[str, ElementType], declared: Mapping[str, TensorSpec], bind: Callable[[Layout], object]
    ) -> None:
        self._kinds = kinds
        self._declared = declared
        self._bind = bind
        self._came: Layout | None = None
        self._bound = Layout(())
        self._as_it_came = False

    def row(self, observed: ParsedMessage) -> Row:
        """Return the observation as a row; rebind the session if the features have changed.

        Raises:
            InvalidError: it does not fit the policy's inputs.

        """
        if observed.layout is not self._came:
            self._adapt(observed.layout)
        if self._as_it_came:
            return observed.values if observed.packed is None else observed.packed
        values: Values = np.zeros(1, self._bound.dtype)
        for came, spec in zip(observed.layout.specs, self._bound.specs, strict=True):
            array = _converted(spec, tensor(came, observed.values))
            values[spec.name][0] = array if spec.fixed else array.copy()
        return values

    def _adapt(self, came: Layout) -> None:
        bound = Layout.of(map(self._target, came.specs))
        if bound != self._bound:
            self._bind(bound)
            self._bound = bound
        self._came = came
        self._as_it_came = bound.fixed and bound == came

    def _target(self, came: TensorSpec) -> TensorSpec:
        declared, before = self._declared.get(came.name), self._bound.by_name.get(came.name)
        kind = self._kinds.get(came.name) or (came.type if declared is None else declared.type)
        if declared is None and before is not None and (before.type, kind) == (ElementType.DOUBLE, ElementType.INT64):
            kind = before.type  # JSON's 4 after 3.5
        shape = (1,) if kind.is_text and not came.type.is_text else came.shape
        if declared is not None:
            shape = declared.shape if declared.varies and shape_fits(declared.shape, shape) else shape
        elif before is not None and len(before.shape) == len(shape):
            shape = tuple(old if old == new else VARIES for old, new in zip(before.shape, shape, strict=True))
        return TensorSpec(came.name, kind, shape)


def _converted(spec: TensorSpec, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if not spec.type.is_text or array.dtype.kind == "O":
        return fit(spec, array)
    if array.dtype != np.uint8:
        raise InvalidError(f"{spec} was given {array.dtype} values")
    text = array.tobytes()
    try:
        plain = text.decode() if spec.type is ElementType.STRING else text
    except UnicodeDecodeError as error:
        raise InvalidError(f"{spec}: a string is not UTF-8: {error}") from error
    return fit(spec, np.array([plain], object))

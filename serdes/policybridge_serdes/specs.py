"""TensorSpec, Layout and Signature: names, types and shapes of a session's tensors, agreed once at open."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from operator import index
from typing import Any, Final, NotRequired, SupportsIndex, TypedDict

import msgspec
import numpy as np
import numpy.typing as npt

from policybridge_core.errors import InvalidError, TooLargeError
from policybridge_core.text import is_unicode

VARIES: Final = -1
"""In a shape: a dimension whose size varies per observation."""

MAX_LAYOUT_BYTES: Final = 2**31 - 1
"""numpy's limit for one record; transports set much lower ones."""

MAX_DIMENSIONS: Final = 31
"""numpy 1's limit for the dimensions of an array, less one for the batch."""

_MAX_ELEMENTS: Final = 2**40
_MAX_BESIDE_ZERO: Final = 2**26


def can_hold(shape: Sequence[int]) -> bool:
    """Tell whether a received shape, whose sizes are not negative, is small enough.

    Sizes beside a 0 cost no bytes of a message, but summing along the empty dimension makes a tensor of them.
    """
    return math.prod(size or 1 for size in shape) <= (_MAX_BESIDE_ZERO if 0 in shape else _MAX_ELEMENTS)


class ElementType(Enum):
    """Element types by LLVM's names (llvm/Analysis/TensorSpec.h), and ML-Compiler-Bridge's bool and strings."""

    FLOAT = "float"
    DOUBLE = "double"
    INT8 = "int8_t"
    UINT8 = "uint8_t"
    INT16 = "int16_t"
    UINT16 = "uint16_t"
    INT32 = "int32_t"
    UINT32 = "uint32_t"
    INT64 = "int64_t"
    UINT64 = "uint64_t"
    BOOL = "bool"
    BYTES = "bytes"
    STRING = "string"

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """The little-endian numpy type; ``object`` for bytes and string, whose elements vary in size."""
        return np.dtype(_DTYPES[self.value])

    @property
    def is_text(self) -> bool:
        """Whether the elements are byte or character strings."""
        return self in (ElementType.BYTES, ElementType.STRING)


_DTYPES: Final = {
    "float": "<f4",
    "double": "<f8",
    **{f"{sign}int{bits}_t": f"<{sign or 'i'}{bits // 8}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
    "bool": "?",
    "bytes": "O",
    "string": "O",
}


class SpecFields(TypedDict):
    """A TensorSpec as LLVM writes it in JSON; ``port`` is always 0 and may be missing."""

    name: str
    type: str
    port: NotRequired[int]
    shape: list[int]


def _as_shape(name: str, given: Iterable[SupportsIndex]) -> tuple[int, ...]:
    try:
        return tuple(index(dim) for dim in given)
    except TypeError:
        raise InvalidError(
            f"{name} has the shape {given!r}; a shape has an integer for each dimension: (3,), or () for a scalar"
        ) from None


@dataclass(frozen=True)
class TensorSpec:
    """A tensor's name, element type and shape; a dimension of −1 varies per observation, ``()`` is a scalar.

    Attributes:
        name: the tensor's name; features are bound to a policy's inputs by name.
        type: of its elements.
        shape: the size of each dimension; −1 for one that varies.

    Raises:
        InvalidError: the name is empty or not valid Unicode, the type is no `ElementType`, the shape is no sequence of
            integers, a dimension is below −1, or there are too many dimensions.
        TooLargeError: the fixed part exceeds ``MAX_LAYOUT_BYTES``.

    """

    name: str
    type: ElementType
    shape: tuple[int, ...] = (1,)

    def __post_init__(self) -> None:
        if not self.name:
            raise InvalidError("a tensor has an empty name; every tensor needs one")
        if not (self.name.isascii() or is_unicode(self.name)):
            raise InvalidError(f"a tensor's name is no Unicode text: {self.name!a}")
        if not isinstance(self.type, ElementType):
            known = ", ".join(f"{kind.name} ({kind.value})" for kind in ElementType)
            raise InvalidError(f"{self.name} has the type {self.type!r}, which is no ElementType; there are {known}")
        if type(self.shape) is not tuple or any(type(dim) is not int for dim in self.shape):
            # A list or numpy's integers: specs are compared and hashed by a tuple of int.
            object.__setattr__(self, "shape", _as_shape(self.name, self.shape))
        if len(self.shape) > MAX_DIMENSIONS:
            raise InvalidError(f"{self.name} has {len(self.shape)} dimensions; at most {MAX_DIMENSIONS} are possible")
        if any(dim < VARIES for dim in self.shape):
            raise InvalidError(f"{self}: a dimension is −1 (varies) or at least 0")
        # numpy applies its limit also to a tensor without elements, by its other dimensions.
        if math.prod(abs(dim) or 1 for dim in self.shape) * self.type.dtype.itemsize > MAX_LAYOUT_BYTES:
            raise TooLargeError(f"{self} is too large; at most {MAX_LAYOUT_BYTES} bytes are possible")

    def __str__(self) -> str:
        return f"{self.name}: {self.type.value}{list(self.shape)}"

    @cached_property
    def varies(self) -> bool:
        """Whether any dimension is −1."""
        return VARIES in self.shape

    @cached_property
    def fixed(self) -> bool:
        """Whether every value of this tensor takes the same number of bytes."""
        return not self.varies and not self.type.is_text

    @cached_property
    def count(self) -> int:
        """Number of elements; a varying dimension counts as 1."""
        return math.prod(abs(dim) for dim in self.shape)

    @cached_property
    def size(self) -> int:
        """Number of bytes; a varying dimension counts as 1."""
        return self.count * self.type.dtype.itemsize

    def to_json(self) -> SpecFields:
        """Return the JSON object that LLVM writes for this spec."""
        return {"name": self.name, "type": self.type.value, "port": 0, "shape": list(self.shape)}

    @classmethod
    def from_json(cls, fields: object) -> "TensorSpec":
        """Read LLVM's JSON object (``name``, ``type``, ``shape``; any ``port``).

        Raises:
            InvalidError: a field is missing or of the wrong type, or the element type is unknown.

        """
        try:
            raw = msgspec.convert(fields, SpecFields)
        except msgspec.ValidationError as error:
            raise InvalidError(f"not a tensor's description: {error}") from error
        try:
            kind = ElementType(raw["type"])
        except ValueError:
            known = ", ".join(kind.value for kind in ElementType)
            raise InvalidError(f"{raw['name']}: unknown element type {raw['type']!r}; known are {known}") from None
        return cls(raw["name"], kind, tuple(raw["shape"]))


@dataclass(frozen=True)
class Layout:
    """The tensors of one message in order, and the numpy record that holds their values.

    If every tensor is fixed, the record is packed: tensor after tensor without padding, which are the bytes of LLVM's
    interactive protocol. For a tensor that varies or holds strings, the record holds a reference to an array.

    Attributes:
        specs: of the tensors, in their order. No two have the same name.

    """

    specs: tuple[TensorSpec, ...]

    def __post_init__(self) -> None:
        seen: set[str] = set()
        for spec in self.specs:
            if spec.name in seen:
                raise InvalidError(f"two tensors are named {spec.name!r}; names must differ")
            seen.add(spec.name)
        if sum(spec.size for spec in self.specs) > MAX_LAYOUT_BYTES:
            raise TooLargeError(f"the {len(self.specs)} tensors together exceed {MAX_LAYOUT_BYTES} bytes")

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        # Computed once: hashing 38 specs takes 40 µs, and each unary call looks up its layout.
        return hash(self.specs)

    @classmethod
    def of(cls, specs: Iterable[TensorSpec]) -> "Layout":
        """Make the layout of ``specs`` in their order."""
        return cls(tuple(specs))

    @classmethod
    def from_json(cls, specs: Iterable[object]) -> "Layout":
        """Read LLVM's JSON objects; see `TensorSpec.from_json`."""
        return cls(tuple(TensorSpec.from_json(spec) for spec in specs))

    @cached_property
    def dtype(self) -> np.dtype[np.void]:
        """The record type: a packed field per fixed tensor, an object field for any other."""
        return np.dtype(
            [(spec.name, spec.type.dtype, spec.shape) if spec.fixed else (spec.name, object) for spec in self.specs]
        )

    @cached_property
    def fixed(self) -> bool:
        """Whether every message has the same number of bytes."""
        return all(spec.fixed for spec in self.specs)

    @cached_property
    def plain(self) -> bool:
        """Whether any bytes of the right size are a message: tensors are fixed, and none is of bools."""
        return self.fixed and all(spec.type is not ElementType.BOOL for spec in self.specs)

    @cached_property
    def uniform(self) -> np.dtype[Any] | None:
        """The element type that all tensors share; ``None`` if they differ or one of them is not fixed."""
        kinds = {spec.type for spec in self.specs}
        return next(iter(kinds)).dtype if self.fixed and len(kinds) == 1 else None

    @cached_property
    def size(self) -> int:
        """Bytes of a packed record. Where tensors vary, each varying dimension counts as 1."""
        return sum(spec.size for spec in self.specs if spec.fixed)

    @cached_property
    def by_name(self) -> dict[str, TensorSpec]:
        """The specs by their names."""
        return {spec.name: spec for spec in self.specs}


@dataclass(frozen=True)
class Signature:
    """The layout of the features and the spec of the advice.

    Attributes:
        features: the tensors of an observation.
        advice: the tensor of a policy's answer.

    """

    features: Layout
    advice: TensorSpec

    @classmethod
    def of(cls, features: Sequence[TensorSpec], advice: TensorSpec) -> "Signature":
        """Make a signature from the features in their order and the advice.

        Raises:
            InvalidError: one of them is no `TensorSpec`.

        """
        for spec in [*features, advice]:
            if not isinstance(spec, TensorSpec):
                raise InvalidError(
                    f"features and advice are TensorSpecs, such as TensorSpec('x', ElementType.INT64), not {spec!r}"
                )
        return cls(Layout.of(features), advice)

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        # Computed once, as the layout's: each session looks up its signature several times.
        return hash((self.features, self.advice))

    @cached_property
    def advice_layout(self) -> Layout:
        """The layout whose only tensor is the advice."""
        return Layout((self.advice,))


Values = npt.NDArray[np.void]
"""Values of a Layout: an array of records, shape [n], one record per observation."""

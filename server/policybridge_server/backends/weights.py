"""Weights as clients publish them: tensors by name in safetensors.

The header is read here, and not by the package safetensors, which parses it and copies every tensor with the
interpreter held: a header of 26 MB stopped all compilers for 5 s. The form: https://github.com/huggingface/safetensors.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import msgspec
import numpy as np

from policybridge_core.errors import InvalidError, PreconditionError

_FLOATS: Final = {"F16": "<f2", "F32": "<f4", "F64": "<f8"}

_BYTES: Final = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E5M2": 1, "F8_E4M3": 1, "I16": 2, "U16": 2, "F16": 2, "BF16": 2, "I32": 4,
    "U32": 4, "F32": 4, "I64": 8, "U64": 8, "F64": 8,
}  # fmt: skip
"""Of one element, by the types' names."""

_LENGTH: Final = 8
"""Bytes that hold the header's length."""

_LARGEST: Final = 1 << 20
"""Bytes of a header: some ten thousand tensors."""

_METADATA: Final = "__metadata__"
_AT_ONCE: Final = 1 << 22
"""Elements that are looked at together."""

_Size = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
_Shape = Annotated[list[_Size], msgspec.Meta(max_length=64)]
"""As many axes as numpy and torch have: the product of ten thousands took seconds."""


class _Entry(msgspec.Struct):
    dtype: str
    shape: _Shape
    data_offsets: tuple[_Size, _Size]


_HEADER: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ENTRY: Final = msgspec.json.Decoder(_Entry)


class Tensor(NamedTuple):
    """One tensor: its type by the name in safetensors, its shape, its bytes."""

    type: str
    shape: tuple[int, ...]
    data: bytes | memoryview

    def __str__(self) -> str:
        return f"{self.type}{list(self.shape)}"


def read_weights(data: bytes | memoryview) -> dict[str, Tensor]:
    """Read tensors by name; their bytes are views of ``data``.

    Raises:
        InvalidError: ``data`` is not safetensors, or its header is larger than 1 MiB.

    """
    view = memoryview(data)
    size = int.from_bytes(view[:_LENGTH], "little")
    if len(view) < _LENGTH or size > len(view) - _LENGTH:
        raise InvalidError(f"the weights are not safetensors: {len(view)} bytes, and a header of {size}")
    if size > _LARGEST:
        raise InvalidError(f"the weights have a header of {size} bytes; at most {_LARGEST} are taken")
    try:
        header = _HEADER.decode(view[_LENGTH : _LENGTH + size])
        entries = {name: _ENTRY.decode(raw) for name, raw in header.items() if name != _METADATA}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidError(f"the weights are not safetensors: {error}") from error
    return _tensors(entries, view[_LENGTH + size :])


def _tensors(entries: Mapping[str, _Entry], data: memoryview) -> dict[str, Tensor]:
    place = 0
    for name, entry in sorted(entries.items(), key=lambda each: each[1].data_offsets):
        begin, end = entry.data_offsets
        width = _BYTES.get(entry.dtype)
        if width is None:
            raise InvalidError(f"the weights are not safetensors: {name!r} is of the unknown type {entry.dtype!r}")
        if begin != place or end - begin != width * math.prod(entry.shape):
            raise InvalidError(f"the weights are not safetensors: {name!r} has the offsets {begin} and {end}")
        place = end
    if place != len(data):
        raise InvalidError(f"the weights are not safetensors: {len(data)} bytes behind the header, of {place}")
    return {
        name: Tensor(entry.dtype, tuple(entry.shape), data[slice(*entry.data_offsets)])
        for name, entry in entries.items()
    }


def replace_state(file: Path, weights: bytes | memoryview) -> None:
    """Replace the safetensors ``file`` by ``weights``, which must hold the same tensors.

    Raises:
        InvalidError: ``weights`` are not safetensors.
        PreconditionError: ``weights`` hold other tensors than ``file``, or NaN.

    """
    new, base = read_weights(weights), read_weights(file.read_bytes())
    missing = base.keys() - new.keys()
    if missing:
        raise PreconditionError(f"the weights lack {', '.join(sorted(missing))}; publish the whole state dict")
    check_weights(new, base)
    # Make a new file: this one may be a hard link to another version's.
    file.unlink()
    file.write_bytes(weights)


def check_weights(new: Mapping[str, Tensor], base: Mapping[str, Tensor]) -> None:
    """Check that the tensors ``new`` may replace those of the same names in ``base``.

    Raises:
        PreconditionError: ``base`` has no such tensor, or one of another type or shape; or a tensor has NaN.

    """
    for name, tensor in new.items():
        if name not in base:
            raise PreconditionError(f"the base has no tensor {name!r}; it has {', '.join(base)}")
        if (tensor.type, tensor.shape) != (base[name].type, base[name].shape):
            raise PreconditionError(f"{name} is {tensor}; in the base it is {base[name]}")
    # The types and shapes of all come first, because to read the values takes longer.
    for name, tensor in new.items():
        if tensor.type in _FLOATS and _has_nan(np.frombuffer(tensor.data, _FLOATS[tensor.type])):
            raise PreconditionError(f"{name} holds NaN")


def _has_nan(values: np.ndarray[tuple[int, ...], np.dtype[np.floating]]) -> bool:
    parts = (values[start : start + _AT_ONCE] for start in range(0, len(values), _AT_ONCE))
    return any(bool(np.isnan(part).any()) for part in parts)

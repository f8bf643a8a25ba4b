"""Weights as clients publish them: tensors by name in safetensors."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import safetensors

from policybridge_core.errors import InvalidError, PreconditionError

_FLOATS: Final = {"F16": "<f2", "F32": "<f4", "F64": "<f8"}


class Tensor(NamedTuple):
    """One tensor: its type by the name in safetensors, its shape, its bytes."""

    type: str
    shape: tuple[int, ...]
    data: bytes

    def __str__(self) -> str:
        return f"{self.type}{list(self.shape)}"


def read_weights(data: bytes) -> dict[str, Tensor]:
    """Read tensors by name.

    Raises:
        InvalidError: ``data`` is not safetensors.

    """
    try:
        found = safetensors.deserialize(data)  # type: ignore[no-untyped-call]
    except safetensors.SafetensorError as error:
        raise InvalidError(f"the weights are not safetensors: {error}") from error
    return {name: Tensor(fields["dtype"], tuple(fields["shape"]), bytes(fields["data"])) for name, fields in found}


def replace_state(file: Path, weights: bytes) -> None:
    """Replace the safetensors ``file`` by ``weights``, which must hold the same tensors.

    Raises:
        InvalidError: ``weights`` are not safetensors.
        PreconditionError: ``weights`` hold other tensors than ``file``, or NaN.

    """
    base, new = read_weights(file.read_bytes()), read_weights(weights)
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
        PreconditionError: ``base`` has no such tensor, or one of another type or shape; or a tensor holds NaN.

    """
    for name, tensor in new.items():
        if name not in base:
            raise PreconditionError(f"the base has no tensor {name!r}; it has {', '.join(base)}")
        if (tensor.type, tensor.shape) != (base[name].type, base[name].shape):
            raise PreconditionError(f"{name} is {tensor}; in the base it is {base[name]}")
        if tensor.type in _FLOATS and np.isnan(np.frombuffer(tensor.data, _FLOATS[tensor.type])).any():
            raise PreconditionError(f"{name} holds NaN")

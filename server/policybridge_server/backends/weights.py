"""Weights as publishers send them: tensors by name in safetensors."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import safetensors

from policybridge_core.errors import InvalidError, PreconditionError

_FLOATS: Final = {"F16": "<f2", "F32": "<f4", "F64": "<f8"}


class Tensor(NamedTuple):
    """One tensor: safetensors' name of its type, its shape, its bytes."""

    type: str
    shape: tuple[int, ...]
    data: bytes

    def __str__(self) -> str:
        return f"{self.type}{list(self.shape)}"


def read_weights(data: bytes) -> dict[str, Tensor]:
    """Read tensors by name.

    Raises:
        InvalidError: it is no safetensors.

    """
    try:
        found = safetensors.deserialize(data)  # type: ignore[no-untyped-call]
    except safetensors.SafetensorError as error:
        raise InvalidError(f"the weights are no safetensors: {error}") from error
    return {name: Tensor(fields["dtype"], tuple(fields["shape"]), bytes(fields["data"])) for name, fields in found}


def replace_state(file: Path, weights: bytes) -> None:
    """Put ``weights`` into the place of ``file``, which are safetensors both and of the same tensors.

    Raises:
        InvalidError: ``weights`` are no safetensors.
        PreconditionError: they are not the tensors of ``file``.

    """
    base, new = read_weights(file.read_bytes()), read_weights(weights)
    missing = base.keys() - new.keys()
    if missing:
        raise PreconditionError(f"the weights lack {', '.join(sorted(missing))}; a state dict comes whole")
    check_weights(new, base)
    # Another file: this one may be another version's too.
    file.unlink()
    file.write_bytes(weights)


def check_weights(new: Mapping[str, Tensor], base: Mapping[str, Tensor]) -> None:
    """Let tensors through that may take the place of those of ``base``.

    Raises:
        PreconditionError: one has no counterpart, another type or shape, or holds NaN.

    """
    for name, tensor in new.items():
        if name not in base:
            raise PreconditionError(f"the base has no tensor {name!r}; it has {', '.join(base)}")
        if (tensor.type, tensor.shape) != (base[name].type, base[name].shape):
            raise PreconditionError(f"{name} is {tensor}; in the base it is {base[name]}")
        if tensor.type in _FLOATS and np.isnan(np.frombuffer(tensor.data, _FLOATS[tensor.type])).any():
            raise PreconditionError(f"{name} holds NaN")

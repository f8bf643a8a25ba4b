"""A model's inputs under the names that clients send; whether a request holds one observation or a batch of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from policybridge_serdes import ElementType, TensorSpec
from policybridge_serdes.values import shape_fits
from policybridge_server.engine.loaded import LoadedVersion
from policybridge_server.engine.probe import MAX_BATCH
from policybridge_server.grpc.error_details import FieldError

Shape = tuple[int, ...]
Fits = Callable[[Sequence[int], Sequence[int]], bool]

MOST: Final = MAX_BATCH
"""Observations in one request: the engine's largest batch, because other clients wait for it."""


@dataclass(frozen=True)
class ModelInput:
    """An input: its spec under the client's name, and whether it may be missing because policy.toml fills it."""

    spec: TensorSpec
    optional: bool = False


def model_inputs(loaded: LoadedVersion) -> dict[str, ModelInput] | None:
    """Return the inputs by the clients' names; ``None`` for a policy that declares none, or has several models."""
    model = loaded.models.get("")
    if model is None or model.signature.features is None:
        return None
    config = model.stored.config
    inputs: dict[str, ModelInput] = {}
    for spec in model.signature.features.specs:
        name = config.rename.get(spec.name, spec.name)
        inputs.setdefault(name, ModelInput(TensorSpec(name, spec.type, spec.shape), spec.name in config.fill))
    mask = None if config.head is None else config.head.mask
    if mask is not None and mask not in inputs and model.head is not None:
        # Any type will do; LLVM sends this one.
        inputs[mask] = ModelInput(TensorSpec(mask, ElementType.INT64, (model.head.count,)))
    return inputs


def batch_size(inputs: Sequence[tuple[TensorSpec, Shape]]) -> int | None:
    """Give the size of the leading batch dimension; ``None`` if the shapes are those of one observation.

    Shapes that fit exactly go first; leading dimensions of 1 may be left out or added, as in LLVM's [1] for a scalar.

    Args:
        inputs: the policy's spec, and the received shape.

    Raises:
        InvalidError: a shape fits neither way, or the batch is too large.

    """
    for fits in (shape_fits, _squeezed_fits):
        if all(fits(spec.shape, shape) for spec, shape in inputs):
            return None
        count = _leading(inputs, fits)
        if count is not None:
            return _checked(count)
    wrong = [(spec, shape) for spec, shape in inputs if not _fits_somehow(spec, shape)]
    if not wrong:
        given = ", ".join(f"{spec.name} {list(shape)}" for spec, shape in inputs)
        raise FieldError("inputs", f"the inputs do not agree on how many observations there are: {given}")
    spec, shape = wrong[0]
    raise FieldError(
        f"inputs[{spec.name}].shape",
        f"{spec} was given the shape {list(shape)}; right are {list(spec.shape)} and, for a batch, "
        f"{['n', *spec.shape]}".replace("'", ""),
    )


def _leading(inputs: Sequence[tuple[TensorSpec, Shape]], fits: Fits) -> int | None:
    counts = {shape[0] if shape and fits(spec.shape, shape[1:]) else None for spec, shape in inputs}
    return counts.pop() if len(counts) == 1 else None


def _checked(count: int) -> int:
    if not 1 <= count <= MOST:
        raise FieldError("inputs", f"a batch of {count} observations; 1 to {MOST} are possible in one request")
    return count


def _fits_somehow(spec: TensorSpec, shape: Shape) -> bool:
    return _squeezed_fits(spec.shape, shape) or (bool(shape) and _squeezed_fits(spec.shape, shape[1:]))


def _squeezed_fits(wanted: Sequence[int], given: Sequence[int]) -> bool:
    return shape_fits(_squeezed(wanted), _squeezed(given))


def _squeezed(shape: Sequence[int]) -> Sequence[int]:
    while shape and shape[0] == 1:
        shape = shape[1:]
    return shape


def full_shape(spec: TensorSpec, given: Shape) -> Shape:
    """Return the fitting shape ``given`` with the number of dimensions of ``spec``."""
    if len(given) == len(spec.shape):
        return given
    bare = tuple(_squeezed(given))
    return (1,) * (len(spec.shape) - len(bare)) + bare

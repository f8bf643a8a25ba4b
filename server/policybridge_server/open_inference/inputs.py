"""A model's inputs as the protocol's clients see them: under the names that they send."""

from dataclasses import dataclass

from policybridge_serdes import ElementType, TensorSpec
from policybridge_server.engine.loaded import LoadedVersion


@dataclass(frozen=True)
class ModelInput:
    """An input: its spec under the client's name, and whether it may be missing because policy.toml fills it."""

    spec: TensorSpec
    optional: bool = False


def model_inputs(loaded: LoadedVersion) -> dict[str, ModelInput] | None:
    """Give the inputs by the names that clients send; ``None`` for a policy that takes whatever comes."""
    if loaded.signature.features is None:
        return None
    config = loaded.stored.config
    inputs: dict[str, ModelInput] = {}
    for spec in loaded.signature.features.specs:
        name = config.rename.get(spec.name, spec.name)
        inputs.setdefault(name, ModelInput(TensorSpec(name, spec.type, spec.shape), spec.name in config.fill))
    mask = None if config.head is None else config.head.mask
    if mask is not None and mask not in inputs and loaded.head is not None:
        # Any type will do; LLVM sends this one.
        inputs[mask] = ModelInput(TensorSpec(mask, ElementType.INT64, (loaded.head.count,)))
    return inputs

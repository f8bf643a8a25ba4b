"""Backend `torch`: exported programs, TorchScript, and weights in safetensors for a module that is installed.

=================== ==================================================================================================
``.pt2``            ``torch.export.save``; the file declares its inputs and its output
``.pt``             ``torch.jit.save``; ``features`` and ``advice`` of ``policy.toml`` declare inputs and output
``.safetensors``    a state dict, with ``module = "package.module:Class"`` and ``arguments``; declared in the same way
=================== ==================================================================================================

Shapes are declared for one observation; the model takes and gives one more dimension before them unless ``batch`` is
false. Loading an artifact runs no code of its author: see `policybridge_server.backends.torch.archive`. A module named
in ``policy.toml`` is code of a package that the operator has installed, never a file of the version.
"""

import importlib
import inspect
import io
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import safetensors.torch
import torch

from policybridge_core.errors import PolicyFailedError, PreconditionError
from policybridge_serdes import TensorSpec, Values
from policybridge_server.backends.artifacts import artifact_file, loading
from policybridge_server.backends.contract import Batch, convert_settings, declared_signature
from policybridge_server.backends.tensors import Array, Interface, Port, TensorModel, TensorSettings
from policybridge_server.backends.torch.archive import check_script
from policybridge_server.backends.torch.program import load_program
from policybridge_server.backends.torch.weights import replace_program_weights
from policybridge_server.backends.weights import replace_state
from policybridge_server.repository import PolicyConfig

_FILES = ("model.pt2", "model.pt", "model.safetensors")

Call = Callable[..., Any]


class TorchSettings(TensorSettings, frozen=True, forbid_unknown_fields=True):
    """``[settings]``.

    Attributes:
        file: in the version's folder; absent: the first there is of ``model.pt2``, ``model.pt``, ``model.safetensors``.
        threads: how many threads work on one operator. PyTorch has one number for the whole process: that of the model
            that was loaded last.
        module: the class that takes the weights of a ``.safetensors``, as ``package.module:Class``.
        arguments: the class is called with these.

    """

    file: str | None = None
    module: str | None = None
    arguments: dict[str, Any] = msgspec.field(default_factory=dict)


class TorchBackend:
    """Loads ``.pt2``, ``.pt`` and ``.safetensors`` files."""

    runs_code: ClassVar[bool] = False

    def load(self, artifact: Path, config: PolicyConfig) -> "TorchModel":
        """Load the model in the way of the file's suffix."""
        settings: TorchSettings = convert_settings(config, TorchSettings)
        file = artifact_file(artifact, *(_FILES if settings.file is None else [settings.file]))
        torch.set_num_threads(settings.threads)
        with loading(file):
            return _load(file, config, settings)

    def replace_weights(self, artifact: Path, config: PolicyConfig, weights: bytes | memoryview) -> None:
        """Replace the state dict of a module, or the weights of an exported program."""
        settings: TorchSettings = convert_settings(config, TorchSettings)
        file = artifact_file(artifact, *(_FILES if settings.file is None else [settings.file]))
        if file.suffix == ".safetensors":
            replace_state(file, weights)
        elif file.suffix == ".pt2":
            program = replace_program_weights(file.read_bytes(), weights)
            # Make a new file: this one may be a hard link to another version's.
            file.unlink()
            file.write_bytes(program)
        else:
            raise PreconditionError(
                f"{file.name} cannot take other weights, only a .pt2 or a .safetensors can; publish the whole version"
            )


def _load(file: Path, config: PolicyConfig, settings: TorchSettings) -> "TorchModel":
    if file.suffix == ".pt2":
        program = load_program(file.read_bytes(), settings)
        return TorchModel(program.call, Interface(program.inputs, program.output, settings))
    if file.suffix == ".pt":
        module, names = _load_script(file.read_bytes())
    elif file.suffix == ".safetensors":
        module, names = _load_module(file, settings)
    else:
        raise PreconditionError("the backend torch loads .pt2, .pt and .safetensors files")
    return TorchModel(_picking(module, settings.output), _declared(config, settings, names))


def _load_script(data: bytes) -> tuple[Call, list[str]]:
    check_script(data)
    with warnings.catch_warnings():
        # PyTorch warns that TorchScript is deprecated. The policy's author can act on that; the operator cannot.
        warnings.simplefilter("ignore", DeprecationWarning)
        jit: Any = torch.jit
        module = jit.load(io.BytesIO(data), map_location="cpu").eval()
        names = [argument.name for argument in module.forward.schema.arguments[1:]]
        try:
            return jit.freeze(module), names
        except (RuntimeError, AttributeError):
            # The module was frozen before it was saved, or cannot be frozen.
            return module, names


def _load_module(file: Path, settings: TorchSettings) -> tuple[Call, list[str]]:
    module = _make_module(settings)
    module.load_state_dict(safetensors.torch.load_file(file))
    module.eval().requires_grad_(requires_grad=False)
    return module, list(inspect.signature(module.forward).parameters)


def _make_module(settings: TorchSettings) -> torch.nn.Module:
    name, _, attribute = (settings.module or "").partition(":")
    if not (name and attribute):
        raise PreconditionError(f'settings.module is {settings.module!r}; weights need a "package.module:Class"')
    kind = getattr(importlib.import_module(name), attribute, None)
    # Check before the call, because any other class could do anything when it is called.
    if not (isinstance(kind, type) and issubclass(kind, torch.nn.Module)):
        raise PreconditionError(f"settings.module is {settings.module!r}, which is no torch.nn.Module")
    module: torch.nn.Module = kind(**settings.arguments)
    return module


def _declared(config: PolicyConfig, settings: TorchSettings, names: Sequence[str]) -> Interface:
    """Give the interface that ``policy.toml`` declares, with the inputs in the model's order."""
    declared = declared_signature(config)
    if declared.features is None or declared.advice is None:
        raise PreconditionError("it declares no inputs and output; policy.toml must declare features and advice")
    specs = declared.features.by_name
    if set(names) != set(specs):
        raise PreconditionError(f"it takes {', '.join(names)}; the features of policy.toml are {', '.join(specs)}")
    batch = settings.batch is not False
    inputs = [_port(specs[name], batch=batch) for name in names]
    return Interface(inputs, _port(declared.advice, batch=batch), settings)


def _port(spec: TensorSpec, *, batch: bool) -> Port:
    return Port(spec.name, spec.type, ["batch", *spec.shape] if batch else spec.shape)


def _picking(module: Call, output: str | None) -> Call:
    if output is None:
        return module

    def call(*feeds: torch.Tensor) -> Any:
        results: Mapping[str, Any] = module(*feeds)
        return results[output]

    return call


def _shareable(array: Array) -> bool:
    # PyTorch warns of a tensor over read-only memory, because writing to it would crash. It refuses strides between
    # elements; one observation keeps its record's size as a stride, and to numpy it is contiguous nevertheless.
    aligned = array.flags.aligned and not any(stride % array.itemsize for stride in array.strides)
    return array.flags.writeable and aligned


class TorchModel(TensorModel):
    """A callable of tensors as a model."""

    def __init__(self, call: Call, interface: Interface) -> None:
        super().__init__(interface)
        self._call = call

    def evaluate(self, batch: Batch) -> Values:
        """Run the model once for all observations of the batch."""
        feeds = [each if _shareable(each) else each.copy() for each in self._interface.feeds(batch.values)]
        try:
            with torch.inference_mode():
                result = self._call(*map(torch.from_numpy, feeds))
        except Exception as error:
            raise PolicyFailedError(f"PyTorch: {error}") from error
        if not isinstance(result, torch.Tensor):
            raise PolicyFailedError(f"the model gave {type(result).__name__} and no tensor; settings.output names one")
        return self._interface.advice(batch, result.numpy())

    def close(self) -> None:
        """Free the weights."""
        del self._call

"""The formats for a network, by the names of the option ``--backend``."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import cast

from policybridge_demo.export.network import Network

Writer = Callable[[Network, Path], None]
"""Writes a network to the folder of a version."""


class ExportError(Exception):
    """A framework is missing; the message contains the command that installs it."""


@dataclass(frozen=True)
class Format:
    """One way to store a network.

    Attributes:
        backend: the backend that loads it.
        writer: the import string of its `Writer`.
        packages: packages that writing and serving it need.
        extras: the extras of policybridge that install them.
        declared: whether ``policy.toml`` has to declare inputs and output, because the file does not.

    """

    backend: str
    writer: str
    packages: Sequence[str]
    extras: Sequence[str]
    declared: bool = False

    def load(self) -> Writer:
        """Import the writer.

        Raises:
            ExportError: a required package is not installed.

        """
        for package in self.packages:
            if find_spec(package) is None:
                command = f"pip install 'policybridge[{','.join(('demo', *self.extras))}]' onnx"
                raise ExportError(f"this demo of the backend {self.backend!r} needs the package {package!r}: {command}")
        module, _, function = self.writer.partition(":")
        return cast("Writer", getattr(import_module(module), function))


_TORCH = "policybridge_demo.export.torch"
_TENSORFLOW = "policybridge_demo.export.tensorflow"

# Every format needs onnx, which reads the bundled weights. TensorFlow converts to .tflite, but no longer runs it.
FORMATS: Mapping[str, Format] = {
    "torch": Format("torch", f"{_TORCH}:write_program", ["onnx", "torch"], ["torch"]),
    "torchscript": Format("torch", f"{_TORCH}:write_script", ["onnx", "torch"], ["torch"], declared=True),
    "tensorflow": Format("tensorflow", f"{_TENSORFLOW}:write_saved_model", ["onnx", "tensorflow"], ["tensorflow"]),
    "litert": Format(
        "litert",
        f"{_TENSORFLOW}:write_litert",
        ["onnx", "tensorflow", "ai_edge_litert"],
        ["litert", "tensorflow"],
    ),
    "onnx": Format("onnx", "policybridge_demo.export.onnx:write_onnx", ["onnx", "onnxruntime"], []),
}

"""A policy's graph as the bytes of an ONNX file."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

_ML_OPSET: Final = 3
_ML: Final = "ai.onnx.ml"

Ports = Mapping[str, tuple[str, Sequence[Any]]]
"""By name: ONNX's element type, such as FLOAT, and the shape."""


class OnnxGraph:
    """Collects nodes and constants under names of its own."""

    def __init__(self) -> None:
        self._nodes: list[Any] = []
        self._constants: list[Any] = []

    def node(self, kind: str, inputs: Sequence[str], output: str = "", **attributes: Any) -> str:
        """Add an operator; give the name of its output."""
        from onnx import helper  # noqa: PLC0415 - only who trains has it

        name = output or f"n{len(self._nodes)}"
        self._nodes.append(helper.make_node(kind, inputs, [name], **attributes))
        return name

    def trees(self, inputs: Sequence[str], targets: int, nodes: Mapping[str, Sequence[Any]]) -> str:
        """Add an ensemble of regression trees; give the name of its output, float[batch, targets]."""
        attributes: dict[str, Any] = {"domain": _ML, "n_targets": targets, **nodes}
        return self.node("TreeEnsembleRegressor", inputs, **attributes)

    def cast(self, name: str, kind: str, output: str = "") -> str:
        """Add a conversion to an element type; give the name of its output."""
        from onnx import TensorProto  # noqa: PLC0415

        return self.node("Cast", [name], output, to=TensorProto.DataType.Value(kind))

    def constant(self, value: npt.ArrayLike, dtype: npt.DTypeLike = np.float32) -> str:
        """Add a constant; give its name."""
        from onnx import numpy_helper  # noqa: PLC0415

        name = f"c{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def to_bytes(self, inputs: Ports, outputs: Ports, opset: int, ir_version: int) -> bytes:
        """Give the file; the same graph gives the same bytes.

        Args:
            inputs: of the graph.
            outputs: of the graph; nodes have these names.
            opset: of ONNX's own operators.
            ir_version: of the file.

        Raises:
            onnx.checker.ValidationError: it is no right graph.

        """
        import onnx  # noqa: PLC0415
        from onnx import TensorProto, helper  # noqa: PLC0415

        taken, given = (
            [
                helper.make_tensor_value_info(name, TensorProto.DataType.Value(kind), shape)
                for name, (kind, shape) in each.items()
            ]
            for each in (inputs, outputs)
        )
        graph = helper.make_graph(self._nodes, "policy", taken, given, self._constants)
        opsets = [helper.make_opsetid("", opset)]
        if any(node.domain == _ML for node in self._nodes):
            opsets.append(helper.make_opsetid(_ML, _ML_OPSET))
        model = helper.make_model(graph, opset_imports=opsets, ir_version=ir_version)
        onnx.checker.check_model(model, full_check=True)
        made: bytes = model.SerializeToString(deterministic=True)
        return made

"""A policy's graph as the bytes of an ONNX file."""

from typing import Any, Final

_ML_OPSET: Final = 3


def onnx_bytes(graph: Any, opset: int, ir_version: int, *, trees: bool = False) -> bytes:
    """Give the file of a graph; the same graph gives the same bytes.

    Args:
        graph: made by ``onnx.helper.make_graph``.
        opset: of ONNX's own operators.
        ir_version: of the file.
        trees: whether there are operators of ``ai.onnx.ml``.

    Raises:
        onnx.checker.ValidationError: it is no right graph.

    """
    import onnx  # noqa: PLC0415 - only who trains has it
    from onnx import helper  # noqa: PLC0415

    opsets = [helper.make_opsetid("", opset), *([helper.make_opsetid("ai.onnx.ml", _ML_OPSET)] if trees else [])]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=ir_version)
    onnx.checker.check_model(model, full_check=True)
    made: bytes = model.SerializeToString(deterministic=True)
    return made

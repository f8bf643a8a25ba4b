"""Modules of linalg operations, and how stock mlir-opt tiles each of them by its own transform dialect."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Operation:
    """One operation in a function of its own.

    Attributes:
        name: of the function.
        types: of the inputs, and last of the output; of tensors, in which a function is also made on memrefs.
        text: the operation, with IN, OUT and RESULT where its operands are, and TAG where its attributes are.
        extents: of its loops.

    """

    name: str
    types: Sequence[str]
    text: str
    extents: Sequence[int]

    def to_mlir(self, *, tensors: bool) -> str:
        """Write the function."""
        types = [f"tensor<{each}>" if tensors else f"memref<{each}>" for each in self.types]
        values = [f"%v{place}" for place in range(len(types))]
        arguments = ", ".join(f"{value}: {of}" for value, of in zip(values, types, strict=True))
        taken = f"ins({', '.join(values[:-1])} : {', '.join(types[:-1])})"
        text = self.text.replace("TAG", f'tag = "{self.tag(tensors=tensors)}"')
        text = text.replace("IN", taken).replace("OUT", f"outs({values[-1]} : {types[-1]})")
        result = f" -> {types[-1]}" if tensors else ""
        head = f"func.func @{self.tag(tensors=tensors)}({arguments}){result} {{\n"
        if tensors:
            return f"{head}  %r = {text.replace('RESULT', result)}\n  return %r : {types[-1]}\n}}\n"
        return f"{head}  {text.replace('RESULT', '')}\n  return\n}}\n"

    def tag(self, *, tensors: bool) -> str:
        return self.name + ("_tensors" if tensors else "")

    def script(self, size: int, *, tensors: bool) -> str:
        """Write how the transform dialect tiles the operation by one size; a loop that is not longer is left."""
        sizes = [size if size < extent else 0 for extent in self.extents]
        loops = [size for size in sizes if size]
        if not loops:
            return ""
        results = ", ".join(["!transform.any_op"] * (1 + len(loops)))
        tag = self.tag(tensors=tensors)
        found = f'    %{tag} = transform.structured.match attributes {{tag = "{tag}"}} in %root'
        tiled = f"    %{tag}_tiled:{1 + len(loops)} = transform.structured.tile_using_for %{tag} tile_sizes {sizes}"
        return f"{found} : (!transform.any_op) -> !transform.any_op\n{tiled} : (!transform.any_op) -> ({results})\n"


def _generic(maps: str, kinds: str, body: str, arguments: str) -> str:
    return (
        f"linalg.generic {{indexing_maps = [{maps}], iterator_types = [{kinds}]}} IN OUT attrs = {{TAG}} "
        f"{{^bb0({arguments}):\n{body}}}RESULT"
    )


def _map(text: str, loops: int = 2) -> str:
    return f"affine_map<({', '.join(f'd{n}' for n in range(loops))}) -> ({text})>"


_ADDED = "    %s = arith.addf %x, %y : f32\n    linalg.yield %s : f32\n  "
_CONVOLUTION = "{dilations = dense<1> : tensor<2xi64>, strides = dense<2> : tensor<2xi64>, TAG}"

OPERATIONS = (
    Operation("matmul", ("64x96xf32", "96x80xf32", "64x80xf32"), "linalg.matmul {TAG} IN OUTRESULT", (64, 80, 96)),
    Operation("narrow", ("50x7xf64", "7x33xf64", "50x33xf64"), "linalg.matmul {TAG} IN OUTRESULT", (50, 33, 7)),
    Operation("whole", ("16x16xi8", "16x16xi8", "16x16xi32"), "linalg.matmul {TAG} IN OUTRESULT", (16, 16, 16)),
    Operation(
        "batched",
        ("3x40x48xf16", "3x48x56xf16", "3x40x56xf16"),
        "linalg.batch_matmul {TAG} IN OUTRESULT",
        (3, 40, 56, 48),
    ),
    Operation(
        "convolved",
        ("1x81x83x5xf32", "3x5x5x40xf32", "1x40x40x40xf32"),
        f"linalg.conv_2d_nhwc_hwcf {_CONVOLUTION} IN OUTRESULT",
        (1, 40, 40, 40, 3, 5, 5),
    ),
    Operation(
        "channels_first",
        ("2x3x40x41xf32", "34x3x2x3xf32", "2x34x20x20xf32"),
        f"linalg.conv_2d_nchw_fchw {_CONVOLUTION} IN OUTRESULT",
        (2, 34, 20, 20, 3, 2, 3),
    ),
    Operation(
        "transposed_sum",
        ("100x70xf32", "70x100xf32"),
        _generic(f"{_map('d0, d1')}, {_map('d1, d0')}", '"parallel", "parallel"', _ADDED, "%x: f32, %y: f32"),
        (100, 70),
    ),
    Operation(
        "row_sums",
        ("90x110xf32", "90xf32"),
        _generic(f"{_map('d0, d1')}, {_map('d0')}", '"parallel", "reduction"', _ADDED, "%x: f32, %y: f32"),
        (90, 110),
    ),
)


def suite() -> str:
    """Write a module of all operations, each on memrefs and on tensors."""
    return "".join(each.to_mlir(tensors=tensors) for each, tensors in _all())


def library(size: int) -> str:
    """Write the transform library that tiles the operations of `suite` by one size."""
    steps = "".join(each.script(size, tensors=tensors) for each, tensors in _all())
    return (
        "module attributes {transform.with_named_sequence} {\n"
        f"  transform.named_sequence @__transform_main(%root: !transform.any_op) {{\n{steps}"
        "    transform.yield\n  }\n}\n"
    )


def _all() -> Iterator[tuple[Operation, bool]]:
    for operation in OPERATIONS:
        yield operation, False
        yield operation, True


ODD = """
#blocks = affine_map<(d0, d1) -> (d0 floordiv 8, d1, d0 mod 8)>
#csr = #sparse_tensor.encoding<{ map = (d0, d1) -> (d0 : dense, d1 : compressed) }>
func.func @layout(%a: memref<64x80xf32, #blocks>, %b: memref<64x80xf32>) {
  linalg.copy ins(%a : memref<64x80xf32, #blocks>) outs(%b : memref<64x80xf32>)
  return
}
func.func @sparse(%a: tensor<64x80xf32, #csr>, %b: tensor<80x40xf32>, %c: tensor<64x40xf32>) -> tensor<64x40xf32> {
  %r = linalg.matmul ins(%a, %b : tensor<64x80xf32, #csr>, tensor<80x40xf32>) outs(%c : tensor<64x40xf32>)
    -> tensor<64x40xf32>
  return %r : tensor<64x40xf32>
}
func.func @dynamic(%a: memref<?x64xf32>, %b: memref<64x64xf32>, %c: memref<?x64xf32>) {
  linalg.matmul ins(%a, %b : memref<?x64xf32>, memref<64x64xf32>) outs(%c : memref<?x64xf32>)
  return
}
func.func @empty(%a: memref<0x64xf32>, %b: memref<64x64xf32>, %c: memref<0x64xf32>) {
  linalg.matmul ins(%a, %b : memref<0x64xf32>, memref<64x64xf32>) outs(%c : memref<0x64xf32>)
  return
}
func.func @repeated(%a: tensor<64xf32>, %b: tensor<64xf32>) -> tensor<64xf32> {
  %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0 mod 8)>, affine_map<(d0) -> (d0)>],
    iterator_types = ["parallel"]} ins(%a : tensor<64xf32>) outs(%b : tensor<64xf32>) {
    ^bb0(%x: f32, %y: f32):
      linalg.yield %x : f32
  } -> tensor<64xf32>
  return %r : tensor<64xf32>
}
func.func @shifted(%a: memref<65xf32>, %b: memref<64xf32>) {
  linalg.generic {indexing_maps = [affine_map<(d0) -> (d0 + 1)>, affine_map<(d0) -> (d0)>],
    iterator_types = ["parallel"]} ins(%a : memref<65xf32>) outs(%b : memref<64xf32>) {
    ^bb0(%x: f32, %y: f32):
      linalg.yield %x : f32
  }
  return
}
func.func @scalar(%a: memref<f32>, %b: memref<f32>) {
  linalg.copy ins(%a : memref<f32>) outs(%b : memref<f32>)
  return
}
"""

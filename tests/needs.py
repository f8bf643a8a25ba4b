"""What a file of tests needs beside the packages ``server`` and ``client``, told by what it imports."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent

FRAMEWORKS: Final = ("ai_edge_litert", "jax", "numba", "onnx", "onnxruntime", "tensorflow", "torch")
COMPILERS: Final = (
    "policybridge_bench",
    "policybridge_demo",
    "tests.attacks",
    "tests.bench",
    "tests.client.compilers",
    "tests.demo",
    "tests.kills",
    "tests.measures",
    "tests.native",
    "tests.peers",
    "tests.postgres_soak",
    "tests.ray_cluster",
    "tests.replicas",
    "tests.slots",
    "tests.soak",
    "tests.training",
    "ziglang",
)
INSTALLS: Final = ("venv",)
"""Modules whose import shows that a file needs a framework, a C or C++ compiler, or an installation of its own."""


def needs_more(path: Path) -> bool:
    """Tell whether the file needs a framework, a compiler or an installation; nothing is imported for it."""
    return any(_is_within(module, (*FRAMEWORKS, *COMPILERS, *INSTALLS)) for module in _reached(path))


def _is_within(module: str, packages: tuple[str, ...]) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def _reached(path: Path) -> set[str]:
    """Give the file's own module, what it imports, and what the tests' own modules among these import."""
    modules = {".".join(path.relative_to(ROOT).with_suffix("").parts)}
    waiting, seen = [path], set()
    while waiting:
        current = waiting.pop()
        if current in seen:
            continue
        seen.add(current)
        modules |= _imports(current)
        waiting += filter(Path.exists, (ROOT / f"{module.replace('.', '/')}.py" for module in _imports(current)))
    return modules


@cache
def _imports(path: Path) -> frozenset[str]:
    return frozenset(module for node in ast.walk(ast.parse(path.read_text())) for module in _imported(node))


def _imported(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Import(names):
            yield from (alias.name for alias in names)
        case ast.ImportFrom(module, names) if module:
            yield module
            yield from (f"{module}.{alias.name}" for alias in names)

"""Checks of PyTorch's archives before they are loaded, because loading them can run their author's code.

``torch.export.load`` falls back to pickles, evaluates the expressions of symbolic shapes as Python, finds operators by
any dotted name under ``torch`` and loads compiled libraries; TorchScript can write files. A policy needs none of that:
an archive is accepted only if all its parts are known to be harmless. These checks read the archive with
PyTorch's own reader, as the loader does, because two readers of one zip file may see two different archives.
"""

import io
import json
import re
from collections.abc import Iterator
from typing import Any

import torch
from torch.export.pt2_archive import PT2ArchiveReader
from torch.export.pt2_archive.constants import AOTINDUCTOR_DIR, MODELS_DIR

_OPERATORS = re.compile(
    r"torch\.ops\.(aten|prims|quantized_decomposed)\.(?!(save|from_file)\b)\w+(\.\w+)?"
    r"|torch\.ops\.higher_order\.(cond|while_loop|map_impl|scan|associative_scan|wrap_with_set_grad_enabled)"
    r"|torch\.sym_\w+|math\.\w+"
    r"|_operator\.(abs|add|and_|eq|floordiv|ge|getitem|gt|le|lt|mod|mul|ne|neg|not_|or_|pos|pow|sub|truediv|xor)"
)
# Possessive, so that each character is read once: a long word before a wrong character took minutes otherwise.
_EXPRESSION = re.compile(r"(?:'\w++'|\d++\.\d++|\w++|[-+*/%(),<>=!&|~ ])*+")
_SYMBOL = re.compile(r"'?[a-z]{1,4}\d+'?|\d+")
_FUNCTIONS = re.compile(
    r"Symbol|Integer|Float|Rational|Add|Mul|Pow|Abs|Mod|Max|Min|FloorDiv|CeilDiv|CleanDiv|PythonMod"
    r"|ModularIndexing|Where|CeilToInt|FloorToInt|TruncToInt|RoundToInt|ToFloat|IntTrueDiv|FloatTrueDiv"
    r"|PowByNatural|Eq|Ne|Lt|Le|Gt|Ge|Equality|Unequality|StrictLessThan|LessThan|StrictGreaterThan|GreaterThan"
    r"|And|Or|Not|Piecewise|ExprCondPair|positive|negative|integer|nonnegative|real|finite|true|false|True"
    r"|False|None|oo|int_oo"
)
_FILES = re.compile(rb"\b(save|from_file)\b|\bops\s*\.\s*(?!(aten|prims?|_?quantized|mkldnn|prepacked)\b)\w+")
_OBJECTS = re.compile(rb"torch\s*\.\s*classes\s*\.\s*(?!quantized\b)\w+")


_EXPANSION = 1032
"""The most bytes that one deflated byte can expand to (zlib's technical details)."""


class RefusedError(Exception):
    """The archive has a part that is not accepted; the message names it."""


def check_program(data: bytes) -> None:
    """Accept an exported program of tensors and a graph of known operators.

    Raises:
        RefusedError: the archive has any other part.
        Exception: ``data`` is not such an archive.

    """
    archive = PT2ArchiveReader(io.BytesIO(data))
    _check_sizes(archive.archive_file, data)
    names: list[str] = archive.get_file_names()
    for name in names:
        if name.startswith(AOTINDUCTOR_DIR):
            raise RefusedError("it has a compiled library; export the program itself")
        # The loader reads any file of this folder as a graph, whatever its suffix.
        if name.startswith(MODELS_DIR):
            _check_graph(json.loads(archive.read_bytes(name)))
        elif name.endswith(".pt"):
            _check_pickle(name, archive.read_bytes(name))
        elif name.endswith("_config.json"):
            _check_payload(name, json.loads(archive.read_bytes(name)))


def check_script(data: bytes) -> None:
    """Accept TorchScript that touches no files.

    Raises:
        RefusedError: the program touches files, or the archive is a checkpoint, which is a pickle.
        Exception: ``data`` is no archive of PyTorch's.

    """
    archive = torch._C.PyTorchFileReader(io.BytesIO(data))
    _check_sizes(archive, data)
    names: list[str] = archive.get_all_records()
    if "constants.pkl" not in names:
        raise RefusedError(
            "it is a checkpoint, which is a pickle, and no TorchScript; store the weights with safetensors"
        )
    for name in names:
        if name.endswith((".py", ".pkl")):
            _check_script_record(name, archive.get_record(name))


def _check_sizes(archive: Any, data: bytes) -> None:
    """Refuse an archive that declares more than it can hold: the reader allocates the declared size."""
    declared = sum(archive.get_record_size(name) for name in archive.get_all_records())
    if declared > _EXPANSION * len(data):
        raise RefusedError(f"it declares {declared:,} bytes of content and has {len(data):,} bytes in all")


def _check_script_record(name: str, content: bytes) -> None:
    match = _OBJECTS.search(content) or (_FILES.search(content) if name.endswith(".py") else None)
    if match:
        raise RefusedError(f"{name} says {match[0].decode()!r}, which does more than compute")


def _check_pickle(name: str, content: bytes) -> None:
    # The loader tries weights_only first, and an unsafe load only if that fails: what passes here loads safely.
    try:
        if content:
            torch.load(io.BytesIO(content), weights_only=True)
    except Exception as error:
        raise RefusedError(f"{name} is a pickle of more than tensors: {error}") from error


def _check_payload(name: str, config: Any) -> None:
    for tensor, payload in config["config"].items():
        if payload["use_pickle"] or payload["path_name"].startswith(("custom_obj", "opaque_obj")):
            raise RefusedError(f"{name}: {tensor} is a pickle and no tensor")


def _check_graph(graph: Any) -> None:
    for key, text in _texts(graph):
        if key in ("target", "as_operator") and not _OPERATORS.fullmatch(text):
            raise RefusedError(f"it calls {text!r}")
        if key in ("in_spec", "out_spec") and "default_factory" in text:
            raise RefusedError("its signature has a defaultdict, for which any module would be imported")
        if key == "expr_str" and not _is_expression(text):
            raise RefusedError(f"a shape is the expression {text!r}")


def _is_expression(text: str) -> bool:
    words = re.findall(r"'?\w+'?", text)
    return bool(_EXPRESSION.fullmatch(text)) and all(
        _FUNCTIONS.fullmatch(word) or _SYMBOL.fullmatch(word) for word in words
    )


def _texts(node: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Give all strings of a JSON document with the key under which they stand."""
    if isinstance(node, str):
        yield key, node
    elif isinstance(node, dict):
        for name, value in node.items():
            yield from _texts(value, name)
    elif isinstance(node, list):
        for value in node:
            yield from _texts(value, key)

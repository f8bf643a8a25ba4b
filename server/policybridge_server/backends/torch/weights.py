"""Other weights for an exported program: the archive is rewritten with their bytes, and the graph stays unchanged.

An archive holds the bytes of each weight in a record of its own, and a table of names, types and shapes. Nothing is
loaded, so that nothing of the archive runs.
"""

import io
import json
import math
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from torch._export.serde.schema import ScalarType
from torch.export.pt2_archive import PT2ArchiveReader, PT2ArchiveWriter
from torch.export.pt2_archive.constants import WEIGHTS_DIR

from policybridge_core.errors import InvalidError, PreconditionError
from policybridge_server.backends.weights import Tensor, check_weights, read_weights

_TYPES: Final = {
    ScalarType.BYTE: ("U8", 1), ScalarType.CHAR: ("I8", 1), ScalarType.SHORT: ("I16", 2), ScalarType.INT: ("I32", 4),
    ScalarType.LONG: ("I64", 8), ScalarType.HALF: ("F16", 2), ScalarType.BFLOAT16: ("BF16", 2),
    ScalarType.FLOAT: ("F32", 4), ScalarType.DOUBLE: ("F64", 8), ScalarType.BOOL: ("BOOL", 1),
}  # fmt: skip
"""PyTorch's element types: their name in safetensors, and their bytes."""

_CONFIG: Final = "_weights_config.json"
_OF_THE_WRITER: Final = (".data/", "byteorder")
"""How records begin that the writer makes by itself."""


class _Weight(NamedTuple):
    """A weight in the archive: the record of its bytes, and a tensor of its type and shape without them."""

    record: str
    tensor: Tensor


def replace_program_weights(data: bytes, weights: bytes | memoryview) -> bytes:
    """Give the ``.pt2`` archive ``data`` with other ``weights``: the state dict of the module, in safetensors.

    Of weights that share their bytes one name is enough.

    Raises:
        InvalidError: ``weights`` are not safetensors, or give two values to weights that share their bytes.
        PreconditionError: they are not those of the archive, or have NaN; or the archive has weights of another form.

    """
    new, archive = read_weights(weights), PT2ArchiveReader(io.BytesIO(data))
    base = dict(_weights(archive))
    check_weights(new, {name: weight.tensor for name, weight in base.items()})
    records = _records(base, new)
    target = io.BytesIO()
    with PT2ArchiveWriter(target) as writer:
        for name in archive.get_file_names():
            if not name.startswith(_OF_THE_WRITER):
                writer.write_bytes(name, records.get(name) or archive.read_bytes(name))
    return target.getvalue()


def _weights(archive: PT2ArchiveReader) -> Iterator[tuple[str, _Weight]]:
    for file in archive.get_file_names():
        if file.startswith(WEIGHTS_DIR) and file.endswith(_CONFIG):
            for name, payload in json.loads(archive.read_bytes(file))["config"].items():
                yield name, _weight(archive, name, payload)


def _weight(archive: PT2ArchiveReader, name: str, payload: Any) -> _Weight:
    meta, record = payload["tensor_meta"], f"{WEIGHTS_DIR}{payload['path_name']}"
    kind, size = _TYPES.get(meta["dtype"], ("", 0))
    shape = tuple(each["as_int"] for each in meta["sizes"])
    strides = [each["as_int"] for each in meta["strides"]]
    wanted = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    plain = all(length == 1 or stride == want for length, stride, want in zip(shape, strides, wanted, strict=True))
    if payload["use_pickle"] or not plain or len(archive.read_bytes(record)) != math.prod(shape) * size:
        raise PreconditionError(f"{name} is not stored as a plain tensor; publish the whole version")
    return _Weight(record, Tensor(kind, shape, b""))


def _records(base: Mapping[str, _Weight], new: Mapping[str, Tensor]) -> dict[str, bytes]:
    records: dict[str, bytes] = {}
    for name, tensor in new.items():
        record = base[name].record
        if records.setdefault(record, bytes(tensor.data)) != tensor.data:
            raise InvalidError(f"{name} shares its bytes with another weight, which is given another value")
    missing = [name for name, weight in base.items() if weight.record not in records]
    if missing:
        raise PreconditionError(f"the weights lack {', '.join(sorted(missing))}; publish the whole state dict")
    return records

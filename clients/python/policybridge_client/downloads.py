"""Receiving the files of a version."""

import shutil
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Final
from uuid import uuid4

from policybridge.v1.repository_service_pb2 import FileChunk
from policybridge_core.errors import InvalidError

_MOST_FILES: Final = 20_000
"""Files of a version. Empty ones have no bytes that would bound them."""


def receive_files(chunks: Iterable[FileChunk], folder: Path, size: int) -> None:
    """Write files that come in pieces into ``folder``, which appears when all of them are there.

    Args:
        chunks: the pieces.
        folder: must not exist yet.
        size: of all files together, in bytes.

    Raises:
        InvalidError: ``folder`` exists, a path leads out of it, or the files have another size.
        OSError: it cannot be written.

    """
    if folder.exists():
        raise InvalidError(f"{folder} exists already; name a new folder")
    arriving = folder.with_name(f".{folder.name}-{uuid4().hex}")
    arriving.mkdir(parents=True)
    try:
        received, paths = 0, set[PurePosixPath]()
        for chunk in chunks:
            path = _relative(chunk.path)
            received += len(chunk.data)
            paths.add(path)
            if received > size or len(paths) > _MOST_FILES:
                raise InvalidError(f"the server sends more than the {size} bytes that it told, or too many files")
            (arriving / path).parent.mkdir(parents=True, exist_ok=True)
            with (arriving / path).open("ab") as content:
                content.write(chunk.data)
        if received < size:
            raise InvalidError(f"the server sent {received} of {size} bytes; try again")
        arriving.rename(folder)
    except BaseException:
        shutil.rmtree(arriving, ignore_errors=True)
        raise


def _relative(text: str) -> PurePosixPath:
    path = PurePosixPath(text)
    if path.is_absolute() or not path.parts or ".." in path.parts or "\0" in text:
        raise InvalidError(f"the server sends a file {text!a}, which leads out of the folder")
    return path

"""Receiving the files of a version."""

import shutil
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from uuid import uuid4

from policybridge.v1.repository_service_pb2 import FileChunk
from policybridge_core.errors import InvalidError


def receive_files(chunks: Iterable[FileChunk], folder: Path) -> None:
    """Write files that come in pieces into ``folder``, which appears when all of them are there.

    Raises:
        InvalidError: ``folder`` exists, or a path leads out of it.
        OSError: it cannot be written.

    """
    if folder.exists():
        raise InvalidError(f"{folder} exists already; name a new folder")
    arriving = folder.with_name(f".{folder.name}-{uuid4().hex}")
    arriving.mkdir(parents=True)
    try:
        for chunk in chunks:
            file = arriving / _relative(chunk.path)
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("ab") as content:
                content.write(chunk.data)
        arriving.rename(folder)
    except BaseException:
        shutil.rmtree(arriving, ignore_errors=True)
        raise


def _relative(text: str) -> PurePosixPath:
    path = PurePosixPath(text)
    if path.is_absolute() or not path.parts or ".." in path.parts or "\0" in text:
        raise InvalidError(f"the server sends a file {text!a}, which leads out of the folder")
    return path

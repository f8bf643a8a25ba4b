"""Changes of files that are complete or not made at all, even if the process is killed."""

import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Final
from uuid import uuid4

from policybridge_core.digest import version_files

PUBLISHING: Final = ".publish-"
REMOVING: Final = ".retired-"


def hidden(parent: Path, prefix: str) -> Path:
    """Give a new path in ``parent`` that is not taken for a policy or a version."""
    return parent / f"{prefix}{uuid4().hex}"


def sync(path: Path) -> None:
    """Write a file or folder to the disk itself."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def replace_file(file: Path, content: bytes) -> None:
    """Replace the content of ``file``, all at once and durably."""
    new = hidden(file.parent, PUBLISHING)
    try:
        new.write_bytes(content)
        sync(new)
        new.replace(file)
        sync(file.parent)
    finally:
        new.unlink(missing_ok=True)


def folder_size(folder: Path) -> int:
    """Give the bytes of the files in ``folder``; 0 if there is no such folder."""
    return sum(path.stat().st_size for path in version_files(folder))


def remove_folder(folder: Path) -> None:
    """Remove a folder, all at once by a rename first; nothing is done if there is no such folder."""
    removing = hidden(folder.parent, REMOVING)
    with suppress(FileNotFoundError):
        folder.rename(removing)
        shutil.rmtree(removing, ignore_errors=True)


def remove_leftovers(parent: Path) -> None:
    """Remove the remains of publications and removals in ``parent`` after a crash."""
    for path in parent.iterdir():
        if path.name.startswith((PUBLISHING, REMOVING)):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)

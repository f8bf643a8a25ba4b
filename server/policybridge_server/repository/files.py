"""Files that are there whole or not at all, whenever the process dies."""

import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Final
from uuid import uuid4

from policybridge_core.digest import version_files

PUBLISHING: Final = ".publish-"
RETIRED: Final = ".retired-"


def hidden(parent: Path, prefix: str) -> Path:
    """Give a name in ``parent`` that nobody has, and that no scan takes for a policy or a version."""
    return parent / f"{prefix}{uuid4().hex}"


def sync(path: Path) -> None:
    """Return when the file or folder is on the disk itself."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def replace_file(file: Path, content: bytes) -> None:
    """Give ``file`` this content, all at once and for good."""
    new = hidden(file.parent, PUBLISHING)
    try:
        new.write_bytes(content)
        sync(new)
        new.replace(file)
        sync(file.parent)
    finally:
        new.unlink(missing_ok=True)


def folder_size(folder: Path) -> int:
    """Give the bytes of the files in ``folder``; 0 where it is gone."""
    return sum(path.stat().st_size for path in version_files(folder))


def remove_folder(folder: Path) -> None:
    """Remove a folder, which disappears all at once; one that is not there is no error."""
    gone = hidden(folder.parent, RETIRED)
    with suppress(FileNotFoundError):
        folder.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)


def remove_leftovers(parent: Path) -> None:
    """Remove what a crash left in ``parent``."""
    for path in parent.iterdir():
        if path.name.startswith((PUBLISHING, RETIRED)):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)

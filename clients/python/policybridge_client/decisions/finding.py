"""A project's store of decisions, which its compilations find by themselves."""

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

NAME: Final = "policybridge.decisions"
"""The file's name."""

OFF: Final = "POLICYBRIDGE_NO_DECISIONS"
"""The environment variable that switches the search off, if it is set and not empty."""

_ROOTS: Final = (".git", ".hg", ".jj", ".svn")
_MOST_WITHOUT_ROOT: Final = 8


@dataclass(frozen=True)
class FoundStore:
    """The nearest store.

    Attributes:
        path: the file.
        refused: why it is not taken; empty if it is.

    """

    path: Path
    refused: str = ""


def find_store(source: Path | str) -> FoundStore | None:
    """Find the nearest file `NAME` upwards from a source's folder; ``None`` if there is none.

    The search ends at the root of the repository: a folder with .git, .hg, .jj or .svn. Without one, a store counts in
    the source's folder and the eight above it. A file that another user could have written is not taken.
    """
    try:
        folder = Path(source).parent.resolve(strict=True)
    except OSError:
        return None
    found: Path | None = None
    for height, each in enumerate((folder, *folder.parents)):
        if found is None and (each / NAME).exists():
            found = each / NAME
        if any((each / root).exists() for root in _ROOTS) or (found and height <= _MOST_WITHOUT_ROOT):
            return FoundStore(found, _doubt_about(found)) if found else None
    return None


def _doubt_about(store: Path) -> str:
    """Tell why another user could have written a file; empty if none could, or only the system's administrator."""
    for path, name in ((store, "it"), (store.parent, "its folder")):
        try:
            about = path.stat()
        except OSError as error:
            return str(error)
        if about.st_uid not in (os.geteuid(), 0):
            return f"{name} belongs to another user; name it by --decisions to use it"
        # Where every user has a group of his own, files are writable by the group.
        by_group = about.st_mode & stat.S_IWGRP and about.st_gid not in (os.getegid(), 0)
        if by_group or about.st_mode & stat.S_IWOTH:
            return f"{name} can be written by other users; name it by --decisions to use it"
    return ""

"""The forms that this user's clients have been sent: files by digest, shared with the clients in C++."""

import os
import re
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

from policybridge_core.digest import content_digest
from policybridge_forms.words import MOST_BYTES

_LIMIT: Final = 256 << 20

_DIGEST: Final = re.compile("sha256:([0-9a-f]{64})")


class FormCache:
    """Files in ``policybridge/forms`` of the user's cache folder.

    A file is used only if it has the SHA-256 of its name. Nothing is kept where the folder is not this user's alone.

    Args:
        limit: bytes of all files; the oldest go first.

    """

    def __init__(self, limit: int = _LIMIT) -> None:
        self._limit = limit

    def find(self, digest: str) -> bytes | None:
        """Give the form of a digest; ``None``: it is not there."""
        # Of another text the server would make a path of its choice.
        named, folder = _DIGEST.fullmatch(digest), own_folder("forms")
        if named is None or folder is None:
            return None
        with suppress(OSError):
            form = _content(folder / named[1])
            return form if content_digest(form) == digest else None
        return None

    def keep(self, form: bytes) -> None:
        """Keep a form. Where it cannot be written, the next client asks for it again."""
        folder = own_folder("forms")
        if folder is None:
            return
        name = content_digest(form).removeprefix("sha256:")
        beside = folder / f"{name}.{os.getpid()}"
        with suppress(OSError):
            # Renamed: another client must not read half of it.
            beside.write_bytes(form)
            beside.replace(folder / name)
            _trim(folder, self._limit)


def _content(file: Path) -> bytes:
    """Read a regular file, as far as a form may go."""
    opened = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(opened, "rb") as content:
        return content.read(MOST_BYTES) if stat.S_ISREG(os.fstat(opened).st_mode) else b""


def own_folder(name: str) -> Path | None:
    """Give a folder of PolicyBridge in the user's cache folder, made if it is missing, if it is this user's alone."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = base / "policybridge" / name
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        about = folder.lstat()
    except OSError:
        return None
    own = stat.S_ISDIR(about.st_mode) and about.st_uid == os.geteuid()
    return folder if own and not about.st_mode & (stat.S_IWGRP | stat.S_IWOTH) else None


def _trim(folder: Path, limit: int) -> None:
    files = sorted(((each.lstat(), each) for each in folder.iterdir()), key=lambda each: each[0].st_mtime)
    total = sum(about.st_size for about, _ in files)
    for about, file in files:
        if total <= limit:
            return
        file.unlink(missing_ok=True)
        total -= about.st_size

"""The mode, owner and group of socket files and pipes."""

import grp
import os
import pwd
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from policybridge_core.errors import InvalidError

_KEEP: Final = -1
"""For chown: keep the owner or group."""


@dataclass(frozen=True)
class SocketFiles:
    """How socket files and pipes are made.

    Attributes:
        mode: permissions; to connect, a client needs to write.
        owner: id of the user, or -1 for the server's.
        group: id of the group, or -1 for the server's.

    """

    mode: int
    owner: int
    group: int

    @classmethod
    def of(cls, mode: str, owner: str | None, group: str | None) -> "SocketFiles":
        """Take them as the configuration has them: octal digits and names, or numbers.

        Raises:
            InvalidError: there is no such user or group.

        """
        return cls(
            int(mode, 8),
            _id(owner, lambda name: pwd.getpwnam(name).pw_uid, "user"),
            _id(group, lambda name: grp.getgrnam(name).gr_gid, "group"),
        )

    def own(self, path: Path) -> None:
        """Give the file at ``path`` its owner, group and mode. Call this before clients can connect.

        Raises:
            OSError: this process may not.

        """
        os.chown(path, self.owner, self.group, follow_symlinks=False)
        path.chmod(self.mode)

    @contextmanager
    def made_by_others(self) -> Iterator[None]:
        """Let a library create a socket file that only the owner may use before `own`."""
        before = os.umask(0o177)
        try:
            yield
        finally:
            os.umask(before)


def _id(name: str | None, find: Callable[[str], int], kind: str) -> int:
    if name is None:
        return _KEEP
    if name.isascii() and name.isdigit():
        return int(name)
    try:
        return find(name)
    except KeyError:
        raise InvalidError(f"this machine has no {kind} {name!r} to own the sockets") from None

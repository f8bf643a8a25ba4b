"""A server's time-out, remembered for a while for all compilations of a build."""

import hashlib
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from policybridge_core.errors import DeadlineError, PolicyBridgeError
from policybridge_serdes import PolicyReference

_DIGITS: Final = 32


class Outage:
    """The last time-out of a server for a policy, in any process of this user.

    The memory is the modification time of an empty file, in a folder that only this user can write:
    ``$XDG_RUNTIME_DIR/policybridge``, or ``$TMPDIR/policybridge-UID`` (in /tmp where TMPDIR is not set).
    `policybridge-run` and the plugins use the same file. If there is no such folder, or it belongs to another user,
    nothing is remembered.

    Args:
        address: the server's address, as for `connect`.
        policy: the policy.
        retry_after: seconds for which a time-out is remembered; 0: not at all.

    """

    def __init__(self, address: str, policy: PolicyReference, retry_after: float) -> None:
        self._address = address
        self._retry_after = retry_after
        text = f"{_absolute(address)}\n{_text(policy)}"
        self._name = hashlib.sha256(os.fsencode(text)).hexdigest()[:_DIGITS]

    def check(self) -> None:
        """Raise `DeadlineError` if the server timed out in the last ``retry_after`` seconds."""
        if not self._retry_after > 0:
            return
        with suppress(OSError), _folder() as folder:
            age = time.time() - os.stat(self._name, dir_fd=folder, follow_symlinks=False).st_mtime
            # A file from the future was made before the clock was set back.
            if 0 <= age < self._retry_after:
                raise DeadlineError(
                    f"the server at {self._address} did not answer in time {int(age)} s ago; "
                    f"it is asked again in {int(self._retry_after - age + 1)} s"
                )
            os.unlink(self._name, dir_fd=folder)

    def remember(self, failure: PolicyBridgeError | None) -> None:
        """Remember ``failure``, if it is a time-out of the server."""
        if not (isinstance(failure, DeadlineError) and self._retry_after > 0):
            return
        with suppress(OSError), _folder() as folder:
            flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            file = os.open(self._name, flags, 0o600, dir_fd=folder)
            try:
                os.utime(file)
            finally:
                os.close(file)


@contextmanager
def _folder() -> Iterator[int]:
    """Open the folder; `OSError` unless only this user can write to it.

    Another user could otherwise switch the policy off, or redirect the file.
    """
    path = _folder_path()
    with suppress(OSError):
        path.mkdir(mode=0o700)
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        about = os.fstat(folder)
        if about.st_uid != os.geteuid() or stat.S_IMODE(about.st_mode) & 0o077:
            raise PermissionError(f"{path} is open to other users")
        yield folder
    finally:
        os.close(folder)


def _folder_path() -> Path:
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if runtime.startswith("/"):
        return Path(runtime) / "policybridge"
    return Path(os.environ.get("TMPDIR") or "/tmp") / f"policybridge-{os.geteuid()}"  # noqa: S108 - checked above


def _absolute(address: str) -> str:
    path = address.removeprefix("socket:")
    if path == address and (":" in address or "/" not in address):
        return address
    return f"socket:{path if path.startswith('/') else f'{Path.cwd()}/{path}'}"


def _text(policy: PolicyReference) -> str:
    which = policy.alias if policy.version is None else policy.version
    return policy.name if which is None else f"{policy.name}@{which}"

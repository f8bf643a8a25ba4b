"""The two FIFOs of one compile.

Every compile has a pair of its own. The paths always name the pair of the next compile: when the server has read the
first bytes of a compile, a new pair takes the paths. So half a message or an unread reply of one compile cannot reach
the next, unless the next opens the pair before the server has read a byte.
"""

import contextlib
import os
import stat
from pathlib import Path

from policybridge_core.errors import UnavailableError
from policybridge_server.access import SocketFiles


class Fifos:
    """A pair of FIFOs at the paths of ``base``, open on the server's side.

    Attributes:
        incoming: descriptor of ``.out``, non-blocking.
        outgoing: descriptor of ``.in``, non-blocking. It is open for reading too: so the compiler's own open never
            blocks, and a write after the compiler's end raises no SIGPIPE.

    Args:
        base: the base of the paths.
        files: mode and owner of the pair.

    Raises:
        OSError: the pair cannot be made.

    """

    def __init__(self, base: str, files: SocketFiles) -> None:
        self.base = base
        # Make .out first: a compiler that finds .in opens .out at once, and creates a regular file if there is none.
        self.incoming = _make(base + ".out", os.O_RDONLY, files)
        try:
            self.outgoing = _make(base + ".in", os.O_RDWR, files)
        except OSError:
            os.close(self.incoming)
            raise

    def reopen(self) -> None:
        """Reopen ``.out`` after a compiler has closed it; only while the paths name this pair."""
        # First open, then close: a compiler that wrote between the two would find no reader, and SIGPIPE would end it.
        incoming = os.open(self.base + ".out", os.O_RDONLY | os.O_NONBLOCK)
        os.dup2(incoming, self.incoming, inheritable=False)
        os.close(incoming)

    def remove(self) -> None:
        """Remove the paths if they name this pair; the descriptors stay open."""
        for path, descriptor in ((self.base + ".in", self.outgoing), (self.base + ".out", self.incoming)):
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.lstat(path), os.fstat(descriptor)):
                    os.unlink(path)  # noqa: PTH108

    def close(self) -> None:
        """Close both descriptors; once."""
        os.close(self.incoming)
        os.close(self.outgoing)


def claim(base: str) -> None:
    """Check that the paths of ``base`` are free, or name FIFOs that a dead server left there.

    Raises:
        UnavailableError: a path is not a FIFO, or another server serves it.

    """
    for path in (base + ".in", base + ".out"):
        try:
            mode = os.lstat(path).st_mode
        except FileNotFoundError:
            continue
        except OSError as error:
            raise UnavailableError(f"cannot make the FIFO {path}: {error.strerror}") from error
        if not stat.S_ISFIFO(mode):
            raise UnavailableError(f"cannot make the FIFO {path}: the path exists and is not a FIFO")
    try:
        probe = os.open(base + ".out", os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return  # without a reader
    os.close(probe)
    raise UnavailableError(f"cannot make the FIFO {base}.out: another server serves it")


def _make(path: str, access: int, files: SocketFiles) -> int:
    fresh = f"{path}.new"
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISFIFO(os.lstat(fresh).st_mode):
            os.unlink(fresh)  # noqa: PTH108
    os.mkfifo(fresh, 0o600)
    try:
        files.own(Path(fresh))
        descriptor = os.open(fresh, access | os.O_NONBLOCK)
        try:
            os.rename(fresh, path)  # noqa: PTH104
        except OSError:
            os.close(descriptor)
            raise
    except OSError:
        os.unlink(fresh)  # noqa: PTH108
        raise
    return descriptor

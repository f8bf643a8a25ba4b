"""The two FIFOs of one compile.

Every compile has a pair of its own. The paths always name the pair of the next one: as soon as a compile has asked for
the first time, a fresh pair takes their place. So nothing that a compile left behind, half a message or an answer that
it did not wait for, can ever reach the one after it.
"""

import contextlib
import os
import stat

from policybridge_core.errors import UnavailableError


class Fifos:
    """A pair that the paths of ``base`` name; open on our side.

    Attributes:
        outgoing: descriptor of ``.in``. It is open for reading too: a compiler's own open of it then never blocks, and
            one that went away costs us no SIGPIPE.
        incoming: descriptor of ``.out``.

    Raises:
        OSError: it cannot be made.

    """

    def __init__(self, base: str) -> None:
        self.base = base
        # A compiler that finds .in goes on to .out, and makes a regular file of that name if there is none.
        self.incoming = _make(base + ".out", os.O_RDONLY)
        try:
            self.outgoing = _make(base + ".in", os.O_RDWR)
        except OSError:
            os.close(self.incoming)
            raise

    def reopen(self) -> None:
        """Forget that a compiler has hung up; only while the paths name this pair."""
        # First open, then close: a compiler that wrote between the two would find no reader, and SIGPIPE would end it.
        incoming = os.open(self.base + ".out", os.O_RDONLY | os.O_NONBLOCK)
        os.dup2(incoming, self.incoming, inheritable=False)
        os.close(incoming)

    def remove(self) -> None:
        """Take the paths away where they name this pair; what is open stays open."""
        for path, descriptor in ((self.base + ".in", self.outgoing), (self.base + ".out", self.incoming)):
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.lstat(path), os.fstat(descriptor)):
                    os.unlink(path)  # noqa: PTH108

    def close(self) -> None:
        """Close both descriptors; once."""
        os.close(self.incoming)
        os.close(self.outgoing)


def claim(base: str) -> None:
    """Make sure that the paths of ``base`` may be ours: free, or FIFOs that a dead server left there.

    Raises:
        UnavailableError: something else is in the way, or a server serves them.

    """
    for path in (base + ".in", base + ".out"):
        try:
            mode = os.lstat(path).st_mode
        except FileNotFoundError:
            continue
        except OSError as error:
            raise UnavailableError(f"cannot make the FIFO {path}: {error.strerror}") from error
        if not stat.S_ISFIFO(mode):
            raise UnavailableError(f"cannot make the FIFO {path}: something is there that is no FIFO")
    try:
        probe = os.open(base + ".out", os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return  # nobody reads there
    os.close(probe)
    raise UnavailableError(f"cannot make the FIFO {base}.out: another server serves it")


def _make(path: str, access: int) -> int:
    fresh = f"{path}.new"
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISFIFO(os.lstat(fresh).st_mode):
            os.unlink(fresh)  # noqa: PTH108
    os.mkfifo(fresh, 0o666)
    try:
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

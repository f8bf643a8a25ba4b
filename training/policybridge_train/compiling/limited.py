"""Runs a command under limits and writes down its processor time: for commands that a host starts.

``python limited.py FOLDER SECONDS MEMORY COMMAND…``. It writes two files into FOLDER: ``process``, its own number,
before the command starts; and ``usage``, the command's processor seconds and whether (0, 1) it took too long, when it
has ended. It ends with the command's status, 128 + n where signal n ended it, or 124 where it took too long. It imports
little, because it starts once for each compilation.
"""

import os
import resource
import select
import signal
import sys
from collections.abc import Sequence
from typing import Final

PROCESS: Final = "process"
USAGE: Final = "usage"
_LATE: Final = 124

_NOT_STARTED: Final = 127


def main(folder: str, seconds: float, memory: int, command: Sequence[str]) -> int:
    """Run the command; return the exit status."""
    _write(folder, PROCESS, str(os.getpid()))
    child = os.fork()
    if not child:
        _become(command, int(seconds) + 10, memory)
    late = not _exited(child, seconds)
    if late:
        os.kill(child, signal.SIGKILL)
    _, status, usage = os.wait4(child, 0)
    _write(folder, USAGE, f"{usage.ru_utime + usage.ru_stime} {int(late)}")
    code = os.waitstatus_to_exitcode(status)
    return _LATE if late else 128 - code if code < 0 else code


def _become(command: Sequence[str], seconds: int, memory: int) -> None:
    wanted = {resource.RLIMIT_AS: memory, resource.RLIMIT_CPU: seconds, resource.RLIMIT_CORE: 0}
    try:
        for what, value in wanted.items():
            _, most = resource.getrlimit(what)
            lower = value if most == resource.RLIM_INFINITY else min(value, most)
            resource.setrlimit(what, (lower, lower))
        os.execvp(command[0], list(command))  # noqa: S606 - no shell is wanted
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error}\n")
    finally:
        os._exit(_NOT_STARTED)


def _exited(process: int, seconds: float) -> bool:
    poll = select.poll()
    poll.register(os.pidfd_open(process), select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def _write(folder: str, name: str, text: str) -> None:
    with open(os.path.join(folder, name), "w", encoding="ascii") as file:  # noqa: PTH118, PTH123 - pathlib is slow to import
        file.write(text)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]))

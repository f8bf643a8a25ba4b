"""Forks servers and publishers: importing their modules takes longer than their lives until the kill.

Each line on standard input asks for one; its process id is the answer. The process writes into the file that the line
names, which is a FIFO.
"""

import os
import signal
import sys

import msgspec

from tests.kills import publisher, server
from tests.kills.messages import Publishing, Serving, Wanted


def main() -> None:
    """Fork as the lines on standard input say."""
    # Those that are killed leave nothing to wait for.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    print("ready", flush=True)
    for line in sys.stdin:
        wanted = msgspec.json.decode(line, type=Wanted)
        pid = os.fork()
        if not pid:
            _become(wanted)
        print(pid, flush=True)


def _become(wanted: Wanted) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.dup2(os.open(wanted.output, os.O_WRONLY), sys.stdout.fileno())
    os.dup2(os.open(os.devnull, os.O_RDONLY), sys.stdin.fileno())
    match wanted.task:
        case Serving():
            server.run(wanted.task)
        case Publishing():
            publisher.run(wanted.task)
    os._exit(0)


if __name__ == "__main__":
    main()

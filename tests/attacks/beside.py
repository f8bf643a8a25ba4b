"""A client beside an attack, in a process of its own: it asks one decision after another and measures each.

Usage: ``python -m tests.attacks.beside ADDRESS POLICY``. The process prints ``ready``, asks until its
standard input ends, and prints a JSON object with ``decisions`` and ``connections``, each a list of
``[begun, seconds]``, and ``refused``, a list of the times at which a connection was refused or not answered within
5 s. ``begun`` is by the monotonic clock, which all processes share. The ``decisions`` belong to one session, which was
open before the attack. For each of the ``connections`` a new socket was connected, and the server's first HTTP/2 frame
waited for.
"""

import json
import socket
import sys
import threading
import time

from policybridge_client import ElementType, TensorSpec, open_runner
from tests.attacks.wire import PREFACE, SETTINGS, frame

_PAUSE = 1e-3
_CONNECT_EVERY = 0.25
_CONNECT_TIMEOUT = 5.0
_ASK_TIMEOUT = 120.0

Times = list[tuple[float, float]]


def main() -> None:
    """Ask until the standard input ends."""
    address, policy = sys.argv[1:]
    over = threading.Event()
    decisions: Times = []
    connections: Times = []
    refused: list[float] = []
    newcomer = threading.Thread(target=_connect, args=(address.partition(":")[2], over, connections, refused))
    features, advice = [TensorSpec("x", ElementType.INT64, (-1,))], TensorSpec("advice", ElementType.INT64, (-1,))
    with open_runner(address, policy=policy, features=features, advice=advice, timeout=_ASK_TIMEOUT) as runner:
        runner["x"] = [1]
        runner.evaluate()
        print("ready", flush=True)
        threading.Thread(target=_wait_for_end, args=(over,), daemon=True).start()
        newcomer.start()
        while not over.is_set():
            begun = time.monotonic()
            runner.evaluate()
            decisions.append((begun, time.monotonic() - begun))
            over.wait(_PAUSE)
    newcomer.join()
    print(json.dumps({"decisions": decisions, "connections": connections, "refused": refused}))


def _wait_for_end(over: threading.Event) -> None:
    sys.stdin.read()
    over.set()


def _connect(target: str, over: threading.Event, done: Times, refused: list[float]) -> None:
    host, _, port = target.rpartition(":")
    while not over.wait(_CONNECT_EVERY):
        begun = time.monotonic()
        try:
            with socket.create_connection((host, int(port)), timeout=_CONNECT_TIMEOUT) as connection:
                connection.sendall(PREFACE + frame(SETTINGS, 0, 0))
                answered = bool(connection.recv(1))
        except OSError:
            answered = False
        if answered:
            done.append((begun, time.monotonic() - begun))
        else:
            refused.append(begun)


if __name__ == "__main__":
    main()

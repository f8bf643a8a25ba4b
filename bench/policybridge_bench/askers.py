"""Processes that ask while versions are published: each one client, so that they wait for nobody but the server.

python -m policybridge_bench.askers ADDRESS INDEX      # until standard input ends; then prints what it saw
"""

import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import Iterator

import numpy as np

from policybridge_bench.publishing import Asker
from policybridge_client.connection import connect


@contextlib.contextmanager
def asking(address: str, count: int) -> Iterator[list[Asker]]:
    """Let ``count`` clients ask in the body; afterwards the list holds what each of them saw."""
    command = [sys.executable, "-m", "policybridge_bench.askers", address]
    pipe = subprocess.PIPE
    running = [subprocess.Popen([*command, str(index)], stdin=pipe, stdout=pipe) for index in range(count)]
    for process in running:
        if process.stdout is None or process.stdout.readline() != b"asking\n":
            raise SystemExit(f"a client ended with {process.wait()}")
    askers: list[Asker] = []
    yield askers
    for process in running:
        if process.stdin is not None:
            process.stdin.close()
            process.stdin = None
    askers += [_read(process.communicate()[0], index) for index, process in enumerate(running)]


def _read(report: bytes, index: int) -> Asker:
    fields = json.loads(report)
    seen = {(version, digest): set(numbers) for version, digest, numbers in fields["seen"]}
    # The connection ended with the process.
    return Asker(connect("grpc:ended"), index, fields["latencies"], seen, fields["errors"], fields["sessions"])


def main() -> None:
    """Ask until standard input ends."""
    asker = Asker(connect(sys.argv[1], timeout=30), int(sys.argv[2]))
    stop = threading.Event()
    thread = threading.Thread(target=asker.run, args=(stop,))
    thread.start()
    sys.stdout.write("asking\n")
    sys.stdout.flush()
    sys.stdin.read()
    stop.set()
    thread.join()
    seen = [[*version, sorted(numbers)] for version, numbers in asker.seen.items()]
    latencies = np.asarray(asker.latencies).round(6).tolist()
    json.dump({"latencies": latencies, "seen": seen, "errors": asker.errors, "sessions": asker.sessions}, sys.stdout)


if __name__ == "__main__":
    main()

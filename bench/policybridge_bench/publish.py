"""Publishing under load, and in the tight loop of a trainer.

    python -m policybridge_bench.publish [--versions 200] [--clients 16] [--seconds 10] [--json FILE]

1. Weights alone for the measured network: from the call to the first session on them. And the same with all files.
2. Versions in a row, 1 in 10 corrupt, under clients that never stop asking: whether any decision came from another
   artifact than the one its session names, the latency beside that without publishing, and the server's memory.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from onnx import numpy_helper

from policybridge_bench.askers import asking
from policybridge_bench.network import SIGNATURE, make_network, write_network
from policybridge_bench.publishing import Asker, Publisher, check, write_first, write_numbered
from policybridge_client.connection import connect
from policybridge_client.policies import RepositoryClient
from policybridge_serdes import PolicyReference, PolicyVersion, SessionOptions

_WARM_VERSIONS = 20


@contextmanager
def serving(repository: Path) -> Iterator[tuple[int, str, str]]:
    """Run a server that may be published to; give its process id and its addresses."""
    listen = ["--grpc", "127.0.0.1:0", "--socket", str(repository.parent / "policy.sock")]
    command = ["policybridge_client.cli", "serve", "--repository", str(repository), "--allow-publish", *listen]
    with subprocess.Popen([sys.executable, "-m", *command], stdout=subprocess.PIPE, text=True) as process:
        _, grpc, socket = process.stdout.readline().split() if process.stdout else ("", "", "")
        yield process.pid, grpc, socket
        process.terminate()


def tight_loop(grpc: str, socket: str, count: int) -> list[float]:
    """Give the milliseconds from each call with new weights to the first session on them."""
    publisher, asker = RepositoryClient(grpc), connect(socket)
    base = {each.name: numpy_helper.to_array(each) for each in make_network(packed=True).graph.initializer}

    def publish(index: int) -> PolicyVersion:
        weights = {name: value + np.float32(index / 1000) for name, value in base.items()}
        return publisher.publish_weights(PolicyReference("network"), weights)

    def session() -> PolicyVersion:
        opened = asker.open(PolicyReference("network"), SIGNATURE, SessionOptions())
        opened.close()
        return opened.policy

    times = []
    for index in range(count):
        started = time.perf_counter()
        made = publish(index)
        if session() != made:
            raise SystemExit("a session after the publication got another version")
        times.append((time.perf_counter() - started) * 1e3)
    publisher.close()
    return times


def whole(grpc: str, files: Path, count: int) -> list[float]:
    """Give the milliseconds of each call with all files."""
    publisher, times = RepositoryClient(grpc), []
    for _ in range(count):
        started = time.perf_counter()
        publisher.publish("network", files)
        times.append((time.perf_counter() - started) * 1e3)
    publisher.close()
    return times


def memory(process: int) -> float:
    """Give what a process holds, in MB."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())
    return int(found[1]) / 1024 if found else 0.0


def under_load(repository: Path, versions: int, clients: int, seconds: float) -> dict[str, float]:
    """Publish ``versions`` in a row under ``clients``, between two quiet phases of ``seconds``."""
    scratch = repository.parent / "scratch"
    for number in range(2, versions + 2):
        write_numbered(scratch / str(number), number)
    with serving(repository) as (process, grpc, socket):
        publisher = Publisher(grpc, repository, repository.parent / "sent")
        with asking(socket, clients) as askers:
            moments, held = [time.perf_counter()], []
            time.sleep(seconds)
            moments.append(time.perf_counter())
            for number in range(2, versions + 2):
                publisher.send(scratch / str(number), number, corrupt=number % 10 == 0)
                if number in (_WARM_VERSIONS, versions + 1):
                    held.append(memory(process))
            moments.append(time.perf_counter())
            time.sleep(seconds)
            moments.append(time.perf_counter())
            held.append(memory(process))
        publisher.close()
    check(askers, publisher)
    return _figures(askers, publisher, moments, held)


def _figures(
    askers: Sequence[Asker], publisher: Publisher, moments: Sequence[float], held: Sequence[float]
) -> dict[str, float]:
    answers = np.concatenate([np.asarray(asker.latencies) for asker in askers])
    start, first, last, end = moments
    publishing = (answers[:, 0] >= first) & (answers[:, 0] < last)
    quiet = (answers[:, 0] >= start) & (answers[:, 0] < end) & ~publishing
    p99, p99_quiet = (float(np.percentile(answers[which, 1], 99)) for which in (publishing, quiet))
    return {
        "versions published": len(publisher.seconds),
        "corrupt ones refused": publisher.refused,
        "sessions": sum(asker.sessions for asker in askers),
        "decisions": len(answers),
        "versions that answered": len({version for asker in askers for version in asker.seen}),
        "publish p50, ms": float(np.median(publisher.seconds)) * 1e3,
        "decisions/s, quiet": float(quiet.sum() / (end - last + first - start)),
        "decisions/s, publishing": float(publishing.sum() / (last - first)),
        "p50 quiet, µs": float(np.median(answers[quiet, 1])),
        "p50 publishing, µs": float(np.median(answers[publishing, 1])),
        "p99 quiet, µs": p99_quiet,
        "p99 publishing, µs": p99,
        "p99 publishing / quiet (at most 2)": p99 / p99_quiet,
        f"memory at version {_WARM_VERSIONS}, MB": held[0],
        "memory at the end, MB": held[-1],
        "memory at the end / then (at most 1.1)": held[-1] / held[0],
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--versions", type=int, default=200)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=10.0, help="without publishing, before and after")
    parser.add_argument("--json", type=Path, help="write all figures there")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pb-") as folder:
        quiet, loaded = Path(folder) / "quiet" / "policies", Path(folder) / "loaded" / "policies"
        write_network(quiet, "network")
        shutil.copytree(quiet / "network" / "1", quiet.parent / "files")
        with serving(quiet) as (_, grpc, socket):
            figures = _spread("weights alone, call to first session", tight_loop(grpc, socket, 100))
            figures |= _spread("all files, the call", whole(grpc, quiet.parent / "files", 30))
        write_first(loaded)
        figures |= under_load(loaded, arguments.versions, arguments.clients, arguments.seconds)
    for name, value in figures.items():
        print(f"{name:<52} {value:12,.2f}")
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1))


def _spread(what: str, times: Sequence[float]) -> dict[str, float]:
    return {f"{what}, p{part}, ms": float(np.percentile(times, part)) for part in (50, 95, 100)}


if __name__ == "__main__":
    main()

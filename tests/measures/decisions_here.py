"""Time decisions of the bundled policy from C++: by its form in the client, and by the server over the Unix socket.

    python -m tests.measures.decisions_here [--rounds N] [--triton] [--json FILE]

The ways take turns in one run, with `--triton` also the stream of Triton's ONNX Runtime backend, which has the smaller
network of `python -m tests.peers`. Prints the median of one client's decisions in microseconds, and the decisions a
second of eight clients together. The server has no ledger, which would slow the reports, a gigabyte a round. Needs
cmake, ninja and g++.
"""

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np

from policybridge_bench.results import read_json
from policybridge_serdes import ElementType, PolicyReference, Signature, TensorSpec
from policybridge_serdes.interactive import header_line
from policybridge_server.forms.making import form_of
from policybridge_server.repository import BUNDLED, Repository
from tests.conftest import running_server

ROOT: Final = Path(__file__).parents[2]
COUNTS: Final = {"here": 400_000, "there": 20_000}
"""Decisions of each client."""
CLIENTS: Final = 8
ROWS: Final = 512


def main() -> None:
    """Build the client, measure, print, and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--triton", action="store_true", help="measure Triton too, which is downloaded and built")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    with TemporaryDirectory(prefix="pb-") as name:
        folder = Path(name)
        client = built(folder / "build", "decisions_here")
        write_load(folder)
        with running_server(None, folder) as server:
            figures = _measured(client, server.socket, folder, arguments.rounds, triton=arguments.triton)
    text = json.dumps(figures, indent=2)
    print(text)
    if arguments.json is not None:
        arguments.json.write_text(text + "\n")


def built(build: Path, name: str) -> Path:
    """Build the program ``tests/measures/NAME.cpp``."""
    configure: list[str | Path] = ["cmake", "-S", ROOT / "clients", "-B", build]
    options = ("-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DPOLICYBRIDGE_GRPC=OFF", "-DPOLICYBRIDGE_LLVM=")
    subprocess.run([*configure, *options], check=True, stdout=subprocess.DEVNULL)
    words: list[str | Path] = ["cmake", "--build", build, "--target", "policybridge_internal"]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    (library,) = build.rglob("libpolicybridge_internal.a")
    sources = ROOT / "clients" / "cpp"
    client = build / name
    program = Path(__file__).with_name(f"{name}.cpp")
    include = [f"-I{sources / 'include'}", f"-I{sources / 'src'}"]
    subprocess.run(["g++", "-O2", "-std=c++17", *include, program, library, "-o", client], check=True)
    return client


def write_load(folder: Path) -> None:
    """Write the header and random observations of the bundled policy for inlining."""
    version = Repository([BUNDLED]).resolve(PolicyReference("inliner"))
    features = [each.spec for each in form_of(version).content.features]
    signature = Signature.of(features, TensorSpec("inlining_decision", ElementType.INT64, (1,)))
    rows = np.zeros(ROWS, signature.features.dtype)
    random = np.random.default_rng(1)
    for spec in features:
        rows[spec.name] = random.integers(0, 200, rows[spec.name].shape)
    (folder / "header").write_bytes(header_line(signature))
    (folder / "rows").write_bytes(rows.tobytes())


def _measured(client: Path, address: str, folder: Path, rounds: int, *, triton: bool) -> Mapping[str, float]:
    places = [*COUNTS, "triton"] if triton else list(COUNTS)
    medians: dict[str, list[float]] = {place: [] for place in places}
    rates: dict[str, list[float]] = {place: [] for place in places}
    for _ in range(rounds):
        for place in COUNTS:
            medians[place].append(_run(client, address, folder, place, 1)[0])
            rates[place].append(_run(client, address, folder, place, CLIENTS)[1])
        if triton:
            median, rate = _triton(folder / "triton.json")
            medians["triton"].append(median)
            rates["triton"].append(rate)
    return {
        **{f"{place}.p50_us": round(statistics.median(each), 2) for place, each in medians.items()},
        **{f"{place}.decisions_per_second": round(statistics.median(each)) for place, each in rates.items()},
    }


def _run(client: Path, address: str, folder: Path, place: str, clients: int) -> tuple[float, float]:
    """Give the median in microseconds, and the decisions a second of all clients together."""
    count = COUNTS[place] // clients if place == "there" else COUNTS[place]
    words: Sequence[str | Path] = [client, address, "inliner", place, folder / "header", folder / "rows", str(count)]
    started = [
        subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(clients)
    ]
    for each in started:
        assert each.stdout is not None
        assert each.stdout.readline() == "ready\n"
    for each in started:
        assert each.stdin is not None
        each.stdin.write("\n")
        each.stdin.flush()
    told = [each.communicate(timeout=600)[0].split() for each in started]
    return statistics.median(float(word[0]) for word in told) / 1e3, count * clients / max(float(w[1]) for w in told)


def _triton(file: Path) -> tuple[float, float]:
    """Give the median in microseconds of one client, and the decisions a second of all clients together."""
    words = ["load", "--contenders", "triton/stream", "--generators", "native", "--clients", f"1,{CLIENTS}"]
    command = [sys.executable, "-m", "tests.peers", *words, "--rounds", "1", "--json", str(file)]
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    one, several = read_json(file).cases
    median, rate = one.median("p50"), several.median("throughput")
    assert median is not None
    assert rate is not None
    return median, rate


if __name__ == "__main__":
    main()

"""How fast the server's web page is: ``python -m tests.measures.web_page``; needs playwright and Chromium.

A ledger is filled with sessions of two versions of a policy, of which one is being rolled out. Then a server is started
on it, and a browser loads the page again and again: a view is there when what it shows was drawn. At last a version is
published while the page is open, and the time is taken until the page shows it.
"""

import argparse
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

import numpy as np

from policybridge_bench.network import SIGNATURE, observations, write_network
from policybridge_client.policies import RepositoryClient
from policybridge_serdes import Outcome, PolicyVersion
from policybridge_server.backends.contract import SessionView
from policybridge_server.ledger.contract import Bounds
from policybridge_server.ledger.records import Begun, Ended, Record, Reported, Segment, Step
from policybridge_server.ledger.sqlite import SqliteStore
from policybridge_server.repository.rollout import ROLLOUT, Rollout, RolloutStep

if TYPE_CHECKING:
    from playwright.sync_api import Browser

VIEWS: Final = ("#/", "#/policies", "#/sessions", "#/rollouts", "#/rollouts/inliner", "#/ledger", "#/runs")
_FILES: Final = 800
_DECISIONS: Final = 40
_BASE, _NEW = 7, 8
_TRANSACTION: Final = 500


def write_policies(repository: Path) -> Path:
    """Make a repository with two versions of ``inliner``, of which the second is being rolled out; give its folder."""
    for version in (_BASE, _NEW):
        write_network(repository, "inliner", version=version)
    ROLLOUT.write(repository / "inliner", _rollout())
    return repository / "inliner"


def _rollout() -> Rollout:
    return Rollout(
        version=_NEW,
        base=_BASE,
        alias="latest",
        share=0.1,
        promote_if=("text < -0.1%",),
        withdraw_if=("failed > 0.5%",),
        files=10**6,
        begun=time.time() - 3600,
    )


def fill_ledger(path: Path, sessions: int) -> None:
    """Write sessions of some hundred files, the base's first, each with decisions and mostly an outcome."""
    generator, now = np.random.default_rng(0), time.time()
    with closing(SqliteStore(path, Bounds())) as store:
        waiting: list[Record] = [Step(RolloutStep("inliner", "begun", _rollout(), now - 3600))]
        for number in range(sessions):
            waiting += _session(number, number / max(1, sessions), now, generator)
            if len(waiting) > _TRANSACTION:
                store.write(waiting)
                waiting = []
        store.write(waiting)


def _session(number: int, progress: float, now: float, generator: np.random.Generator) -> Iterator[Record]:
    file = int(generator.integers(_FILES))
    policy = PolicyVersion("inliner", _NEW if file % 10 == 0 and progress > 0.5 else _BASE, "sha256:" + "0" * 64)
    name = f"src/part{file % 12}/unit_{file:03}.cpp"
    view = SessionView(f"{number:032x}", policy, name, labels={"project": f"project-{file % 5}"}, file=name)
    opened = now - 7200 * (1 - progress)
    rows = [np.ndarray(1, SIGNATURE.features.dtype, each.tobytes()) for each in observations(_DECISIONS, number)]
    advices = [np.ndarray(1, SIGNATURE.advice_layout.dtype, np.int64(bit).tobytes()) for bit in (0, 1)]
    decided = [(row, advices[number + step & 1], None, 20_000 + 100 * step) for step, row in enumerate(rows)]
    yield Begun(view, opened)
    yield Segment(view.id, 1, SIGNATURE, f"function_{number % 97}", decided, 0)
    smaller = 0.996 if policy.version == _NEW else 1.0
    text = float(round((2000 + 37 * file) * smaller * (1 + generator.normal() / 400)))
    status = "crash" if number % 400 == 3 else "ok"
    yield Reported(view.id, Outcome({"text": text, "seconds": float(generator.gamma(2, 0.3))}, status), opened + 2)
    yield Ended(view.id, opened + 2)


@contextmanager
def browser() -> Iterator["Browser"]:
    """Start a Chromium without a window: Debian's, or the one that playwright has downloaded."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - it is needed here alone

    with sync_playwright() as playwright:
        path = shutil.which("chromium")
        started = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            yield started
        finally:
            started.close()


def loads(started: "Browser", address: str, view: str, rounds: int) -> list[float]:
    """Load a view in new tabs; give the milliseconds from the navigation until its content is drawn."""
    found = []
    for _ in range(rounds):
        page = started.new_page()
        page.goto(f"{address}/{view}", wait_until="commit")
        page.wait_for_selector("body[data-ready]", state="attached")
        found.append(float(page.evaluate("performance.measure('all', {start: 0, end: 'drawn'}).duration")))
        page.close()
    return found


def publication(started: "Browser", address: str, grpc: str, files: Path) -> float:
    """Publish a version while the policies are shown; give the seconds from the acknowledgement until it is there."""
    page = started.new_page()
    page.goto(f"{address}/#/policies/inliner")
    page.wait_for_selector("body[data-ready]", state="attached")
    with RepositoryClient(grpc) as client:
        number = client.publish("inliner", files).version
    begun = time.perf_counter()
    page.wait_for_selector(f"td:text-is('{number}')")
    return time.perf_counter() - begun


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, and print a line for each view."""
    parser = argparse.ArgumentParser(prog="python -m tests.measures.web_page", description=__doc__)
    parser.add_argument("--sessions", type=int, default=10_000, help="in the ledger (10000)")
    parser.add_argument("--rounds", type=int, default=10, help="loads of each view (10)")
    arguments = parser.parse_args(argv)
    with TemporaryDirectory() as folder, browser() as started:
        policy = write_policies(Path(folder, "policies"))
        fill_ledger(Path(folder, "runs.db"), arguments.sessions)
        with _serving(Path(folder)) as (grpc, http):
            for view in VIEWS:
                times = loads(started, http, view, arguments.rounds)
                print(f"{view:20} median {statistics.median(times):6.0f} ms, worst {max(times):6.0f} ms")
            print(f"a publication is shown after {publication(started, http, grpc, policy / str(_NEW)):.2f} s")
    return 0


@contextmanager
def _serving(folder: Path) -> Iterator[tuple[str, str]]:
    listen = ["--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0", "--allow-publish"]
    words: list[str | Path] = ["serve", "--repository", folder / "policies", "--ledger", folder / "runs.db", *listen]
    process = subprocess.Popen(
        [sys.executable, "-m", "policybridge_client.cli", *words], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        _, grpc, http = process.stdout.readline().split()
        yield grpc, http.replace("http:", "http://", 1)
    finally:
        process.terminate()
        process.wait()


if __name__ == "__main__":
    sys.exit(main())

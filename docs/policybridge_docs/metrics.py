"""The page of the metrics, as a running server gives them to Prometheus."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Final, cast
from urllib.request import urlopen

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from policybridge_client import ElementType, PolicyBridgeError, TensorSpec, open_runner
from policybridge_docs.markdown import code, table

_HEAD: Final = """# Metrics

A server with `--http` answers at `/metrics`. [Running a server for a team](../operating.md#metrics) tells how they
are read, which alerts there are and what to do about them. Those of the ledger are there where a server keeps one;
`process_…` are Prometheus's own.
"""

_SUFFIXES: Final = {"counter": "_total", "info": "_info"}


def page() -> str:
    """Give the page. Starts a server that decides once and tells one error, since labels are known by their use."""
    with _serving() as (socket, http):
        _ask(socket)
        with urlopen(f"http://{http}/metrics") as answer:
            text = answer.read().decode()
    families = [family for family in text_string_to_metric_families(text) if not family.name.startswith("process_")]
    rows = [_row(family) for family in families if not family.name.endswith("_created")]
    return "\n".join([_HEAD, *table(("metric", "kind", "labels", "meaning"), sorted(rows))])


def _row(family: Metric) -> tuple[str, str, str, str]:
    labels = {label: None for sample in family.samples for label in sample.labels if label != "le"}
    name = f"{family.name}{_SUFFIXES.get(family.type, '')}"
    return code(name), family.type, ", ".join(map(code, labels)), family.documentation


def _ask(socket: str) -> None:
    features, advice = [TensorSpec("inlining_default", ElementType.INT64)], TensorSpec("decision", ElementType.INT64)
    with open_runner(socket, policy="inlining-default", features=features, advice=advice) as runner:
        runner.evaluate()
        runner.report("ok")
    with suppress(PolicyBridgeError), open_runner(socket, policy="none", features=features, advice=advice) as runner:
        runner.evaluate()


@contextmanager
def _serving() -> Iterator[tuple[str, str]]:
    """Start a server with a ledger and the bundled policies; give its socket's address and its HTTP address."""
    with TemporaryDirectory(prefix="pb-") as name:
        folder = Path(name)
        places = ["--socket", str(folder / "s"), "--http", "127.0.0.1:0", "--ledger", str(folder / "ledger.db")]
        command = [sys.executable, "-m", "policybridge_client.cli", "serve", "--demo", *places]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                ready = cast("IO[str]", process.stdout).readline()
                said = dict(word.split(":", 1) for word in ready.split()[1:])
                yield f"socket:{said['socket']}", said["http"]
            finally:
                process.terminate()

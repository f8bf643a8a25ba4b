"""Each alert fires by its fault, in a real Prometheus that scrapes real servers, and by no other one."""

import json
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from policybridge_bench.processes import free_port
from tests.server.publishing.policies import wait_for
from tests.server.telemetry.faults import Faulty, faulty_servers
from tests.server.telemetry.promtool import needed, promtool
from tests.server.telemetry.recorded import FAULTY, HEALTHY, firing, series

ROOT = Path(__file__).parents[3]
RULES = ROOT / "docker" / "prometheus" / "alerts.yml"
ALERTS = set(re.findall(r"alert: (\w+)", RULES.read_text()))

SOON = {
    "PolicyBridgePolicyFails",
    "PolicyBridgeServerFaults",
    "PolicyBridgeLedgerLoses",
    "PolicyBridgePublicationRefused",
}
"""The alerts that fire at once: what they tell of has happened, and does not go away."""


OF_TIME = {"PolicyBridgeSlow", "PolicyBridgeLoopStalls"}
"""A busy machine may raise these for every server."""


@pytest.fixture(scope="module")
def servers() -> Iterator[list[Faulty]]:
    needed("promtool")
    with faulty_servers() as servers:
        yield servers


class Prometheus:
    """A Prometheus that scrapes every three seconds.

    Args:
        address: of its HTTP port.

    """

    def __init__(self, address: str) -> None:
        self._address = address

    def _asked(self, path: str) -> list[dict[str, Any]]:
        with urllib.request.urlopen(f"http://{self._address}/api/v1/{path}", timeout=60) as reply:
            data = json.loads(reply.read())["data"]
        return list(data["alerts"])

    def is_ready(self) -> bool:
        with suppress(OSError):
            return not self._asked("alerts") or True
        return False

    def firing(self) -> set[tuple[str, str]]:
        """Give the alerts that fire now, with the server of each."""
        found = (each for each in self._asked("alerts") if each["state"] == "firing")
        return {(each["labels"]["alertname"], each["labels"]["instance"]) for each in found}


@contextmanager
def prometheus(folder: Path, servers: list[Faulty]) -> Iterator[Prometheus]:
    """Run Prometheus over the servers, with the rules of the tree, which fire at once here."""
    (folder / "rules.yml").write_text(re.sub(r"\n +for: \w+", "", RULES.read_text()))
    targets = json.dumps([server.http for server in servers])
    (folder / "prometheus.yml").write_text(
        "global: {scrape_interval: 3s, scrape_timeout: 3s, evaluation_interval: 1s}\nrule_files: [rules.yml]\n"
        f"scrape_configs: [{{job_name: policybridge, static_configs: [{{targets: {targets}}}]}}]\n"
    )
    address = f"127.0.0.1:{free_port()}"
    words = [f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [needed("prometheus"), *words, f"--web.listen-address={address}"], stdout=log, stderr=log
        )
    try:
        found = Prometheus(address)
        wait_for(found.is_ready)
        yield found
    finally:
        process.kill()
        process.wait(60)


def test_every_alert_is_expected_of_a_fault_and_described(servers: list[Faulty]) -> None:
    assert set.union(*(server.alerts for server in servers)) == ALERTS
    described = re.findall(r"^\| (`PolicyBridge.+?) \|", (ROOT / "docs" / "operating.md").read_text(), re.MULTILINE)
    assert set(re.findall(r"PolicyBridge\w+", " ".join(described))) == ALERTS


def test_each_fault_raises_its_alerts_and_no_others(servers: list[Faulty], tmp_path: Path) -> None:
    expected = {(alert, server.http) for server in servers for alert in server.alerts}
    with prometheus(tmp_path, servers) as running:
        wait_for(lambda: running.firing() >= expected, 120)
        # A scrape of a busy machine may be late once.
        wait_for(lambda: {alert for alert in running.firing() - expected if alert[0] not in OF_TIME} == set())


def test_the_alerts_wait_as_long_as_they_say_and_no_longer(servers: list[Faulty], tmp_path: Path) -> None:
    rules = tmp_path / "alerts.yml"
    shutil.copy(RULES, rules)
    test = {
        "rule_files": [str(rules)],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [each for server in servers for each in series(server, servers[0].before)],
                "promql_expr_test": [
                    firing(HEALTHY - 1, [], ALERTS),
                    firing(HEALTHY, servers, SOON),
                    firing(HEALTHY, [], ALERTS - SOON),
                    firing(HEALTHY + FAULTY - 2, servers, ALERTS - OF_TIME),
                    *(
                        firing(HEALTHY + FAULTY - 2, [server], {alert}, server.http)
                        for alert in OF_TIME
                        for server in servers
                        if alert in server.alerts
                    ),
                ],
            }
        ],
    }
    # JSON is YAML.
    (tmp_path / "test.yml").write_text(json.dumps(test))
    promtool("test", "rules", tmp_path / "test.yml")

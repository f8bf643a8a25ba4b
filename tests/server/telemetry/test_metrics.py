"""What a server counts, as Prometheus reads it."""

import re
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from prometheus_client.parser import text_string_to_metric_families

from policybridge_client import open_runner
from policybridge_client.connection import connect
from policybridge_core.errors import PolicyBridgeError
from policybridge_serdes import ElementType, Outcome, PolicyReference, TensorSpec
from tests.repositories import answering, write_python
from tests.server.telemetry.promtool import promtool
from tests.serving import started

ROOT = Path(__file__).parents[3]
RULES = ROOT / "docker" / "prometheus" / "alerts.yml"
DASHBOARDS = sorted((ROOT / "docker" / "grafana" / "dashboards").glob("*.json"))

X = TensorSpec("x", ElementType.INT64, (1,))
ADVICE = TensorSpec("advice", ElementType.INT64, (1,))

Values = dict[tuple[str, frozenset[tuple[str, str]]], float]


@dataclass
class Server:
    """A server with metrics; its policies are ``double`` and ``broken``."""

    socket: str
    grpc: str
    http: str

    def text(self, **headers: str) -> str:
        request = urllib.request.Request(f"{self.http}/metrics", headers=headers)
        with urllib.request.urlopen(request, timeout=60) as reply:
            return str(reply.read().decode())

    def values(self) -> Values:
        families = text_string_to_metric_families(self.text())
        samples = (sample for family in families for sample in family.samples)
        return {(sample.name, frozenset(sample.labels.items())): sample.value for sample in samples}

    def value(self, name: str, **labels: str) -> float:
        """Give the sum of the samples that have these labels."""
        return sum(value for (each, has), value in self.values().items() if each == name and has >= labels.items())


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with TemporaryDirectory(prefix="pb-") as name:
        folder = Path(name)
        write_python(folder / "policies", "double", answering("observation['x'] * 2"))
        write_python(folder / "policies", "double", answering("observation['x'] * 2"), version=2)
        write_python(folder / "policies", "broken", answering("1 / 0"))
        listen = ("--socket", folder / "server.sock", "--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0")
        arguments = ("--repository", folder / "policies", "--allow-python", "--ledger", folder / "ledger.db")
        with started(*arguments, *listen) as (_, (grpc, socket, http)):
            yield Server(socket, grpc, http.replace("http:", "http://", 1))


def ask(address: str, policy: str, times: int = 1) -> str:
    """Ask in one session; give its id."""
    with open_runner(address, policy=policy, features=[X], advice=ADVICE) as runner:
        for number in range(times):
            runner["x"] = number
            runner.evaluate()
        return runner.session_id


def grown(server: Server, name: str, by: Callable[[], object], **labels: str) -> float:
    before = server.value(name, **labels)
    by()
    return server.value(name, **labels) - before


@pytest.mark.parametrize("way", ["socket", "grpc"])
def test_decisions_and_sessions_are_counted_by_policy_and_version(server: Server, way: str) -> None:
    before = server.values()
    ask(getattr(server, way), "double", 5)
    ask(getattr(server, way), "double@1", 2)
    after = server.values()
    grew = {key: value - before.get(key, 0.0) for key, value in after.items()}

    def of(name: str, version: str, **more: str) -> float:
        return grew[f"policybridge_{name}", frozenset({"policy": "double", "version": version, **more}.items())]

    assert (of("decisions_total", "2"), of("decisions_total", "1")) == (5, 2)
    assert (of("sessions_opened_total", "2"), of("sessions_opened_total", "1")) == (1, 1)
    assert of("batch_size_sum", "2") == 5
    for stage in ("read", "queue", "model", "answer"):
        assert of("decision_seconds_count", "2", stage=stage) == 5
        assert 0 <= of("decision_seconds_sum", "2", stage=stage) < 60


def test_a_version_that_nobody_uses_any_more_is_unloaded_and_its_numbers_can_still_be_read(server: Server) -> None:
    ask(server.socket, "double@1")
    assert server.value("policybridge_decisions_total", policy="double", version="1") >= 1
    assert server.value("policybridge_version_unloads_total") >= 1
    assert server.value("policybridge_versions_loaded") == 2


def test_the_errors_that_clients_are_told_are_counted_by_transport_and_status(server: Server) -> None:
    def fail(address: str, policy: str) -> None:
        with pytest.raises(PolicyBridgeError):
            ask(address, policy)

    errors = "policybridge_errors_total"
    assert grown(server, errors, lambda: fail(server.socket, "none"), transport="socket", status="NOT_FOUND") == 1
    assert grown(server, errors, lambda: fail(server.grpc, "none"), transport="grpc", status="NOT_FOUND") == 1
    failures = "policybridge_policy_failures_total"
    assert grown(server, failures, lambda: fail(server.socket, "broken"), policy="broken") == 1
    assert server.value(errors, transport="socket", status="INTERNAL") >= 1


def test_fallbacks_are_counted_as_clients_report_them_once_for_a_compilation_with_several_sessions(
    server: Server,
) -> None:
    sessions = [ask(server.socket, "double"), ask(server.socket, "double")]
    outcome = Outcome({"defaults": 6, "sessions": 2}, "fallback")

    def report() -> None:
        with connect(server.socket) as connection:
            for session in sessions:
                connection.report_outcome(session, outcome)

    assert grown(server, "policybridge_fallback_decisions_total", report, policy="double") == 6
    assert grown(server, "policybridge_outcomes_total", report, policy="double", status="fallback") == 2
    odd = Outcome({}, "a status of my own")
    with connect(server.socket) as connection:
        connection.report_outcome(sessions[0], odd)
    assert server.value("policybridge_outcomes_total", status="other") >= 1


def test_the_ledger_the_loop_and_the_process_are_told_about(server: Server) -> None:
    ask(server.socket, "double", 3)
    told = server.values()
    names = {name for name, _ in told}
    assert server.value("policybridge_ledger_size_bytes") > 0
    assert server.value("policybridge_ledger_written_bytes_total") >= 0
    assert {"policybridge_ledger_lag_seconds", "policybridge_ledger_waiting_bytes"} < names
    assert server.value("policybridge_loop_turn_seconds_count") > 0
    assert server.value("process_resident_memory_bytes") > 1 << 20
    assert server.value("policybridge_ready") == 1


def test_prometheus_finds_no_fault_with_the_metrics_nor_with_the_rules(server: Server) -> None:
    promtool("check", "metrics", given=server.text())
    promtool("check", "rules", RULES)
    promtool("check", "config", RULES.with_name("prometheus.yml"))


def test_a_scraper_that_wants_open_metrics_gets_them(server: Server) -> None:
    assert server.text(Accept="application/openmetrics-text; version=1.0.0").endswith("# EOF\n")


def test_every_metric_of_the_dashboard_and_the_alerts_exists(server: Server) -> None:
    ask(server.socket, "double")
    with pytest.raises(PolicyBridgeError):
        ask(server.socket, "none")
    with connect(server.socket) as connection:
        connection.report_outcome(ask(server.socket, "double"), Outcome({}, "ok"))
    existing = {name for name, _ in server.values()}
    files = [RULES, *DASHBOARDS]
    wanted = {name for file in files for name in re.findall(r"\b(?:policybridge|process)_\w+", file.read_text())}
    assert len(wanted) > 20
    assert wanted <= existing


def test_a_policy_is_asked_while_somebody_scrapes(server: Server) -> None:
    reference = PolicyReference("double")
    with open_runner(server.socket, policy=str(reference), features=[X], advice=ADVICE) as runner:
        for number in range(20):
            runner["x"] = number
            assert int(runner.evaluate()) == 2 * number
            assert server.value("policybridge_sessions", policy="double", version="2") == 1


def test_metrics_are_for_those_who_may_read(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.toml"
    tokens.write_text(
        f'[prometheus]\ntoken = "{"r" * 24}"\nscopes = ["read"]\n[ci]\ntoken = "{"e" * 24}"\nscopes = ["evaluate"]\n'
    )
    tokens.chmod(0o600)
    with started("--demo", "--http", "127.0.0.1:0", "--tokens", tokens) as (_, (http,)):
        server = Server("", "", http.replace("http:", "http://", 1))
        assert "policybridge_ready" in server.text(Authorization=f"Bearer {'r' * 24}")
        for headers, status in [({}, 401), ({"Authorization": f"Bearer {'e' * 24}"}, 403)]:
            with pytest.raises(urllib.error.HTTPError) as refused:
                server.text(**headers)
            with refused.value:
                assert refused.value.code == status

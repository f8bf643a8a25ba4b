"""Series for `promtool test rules`, from the metrics of real servers before their fault and with it."""

import json
from typing import Any, Final

from prometheus_client.parser import text_string_to_metric_families

from tests.server.telemetry.faults import Faulty

HEALTHY: Final = 10
"""Minutes without the fault; then it stays."""

FAULTY: Final = 20

_COUNTED: Final = ("_total", "_bucket", "_count", "_sum")


def series(server: Faulty, before_fault: str) -> list[dict[str, str]]:
    """Give a server's series: what was counted with the fault is counted anew in each minute of it."""
    before, now = _samples(before_fault), _samples(server.metrics())
    up = {"series": _named(server, "up", {}), "values": f"1x{HEALTHY - 1} {int(bool(now))}x{FAULTY}"}
    return [up, *({"series": _named(server, *key), "values": _values(key[0], before, now, key)} for key in now)]


def _values(name: str, before: dict[Any, float], now: dict[Any, float], key: Any) -> str:
    old, new = before.get(key), now[key]
    healthy = f"_x{HEALTHY}" if old is None else f"{old!r}x{HEALTHY - 1}"
    if not name.endswith(_COUNTED):
        return f"{healthy} {new!r}x{FAULTY}"
    return f"{healthy} {new!r}+{max(0.0, new - (old or 0.0))!r}x{FAULTY}"


def _samples(text: str) -> dict[Any, float]:
    families = text_string_to_metric_families(text)
    samples = (sample for family in families for sample in family.samples)
    return {(sample.name, Labels(sample.labels)): sample.value for sample in samples if "_created" not in sample.name}


class Labels(dict[str, str]):
    """Labels as a key."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))


def _named(server: Faulty, name: str, labels: dict[str, str]) -> str:
    all_of = {**labels, "job": "policybridge", "instance": server.http}
    return f"{name}{{{', '.join(f'{each}={json.dumps(value)}' for each, value in all_of.items())}}}"


def firing(minute: int, servers: list[Faulty], alerts: set[str], instance: str = ".+") -> dict[str, Any]:
    """Say that of these alerts those of each server's fault fire in a minute, and no others."""
    found = ((alert, server.http) for server in servers for alert in server.alerts & alerts)
    those = f'alertstate="firing", alertname=~"{"|".join(alerts)}", instance=~"{instance}"'
    return {
        "expr": f"group by (alertname, instance) (ALERTS{{{those}}})",
        "eval_time": f"{minute}m",
        "exp_samples": [{"labels": f'{{alertname="{alert}", instance="{http}"}}', "value": 1} for alert, http in found],
    }

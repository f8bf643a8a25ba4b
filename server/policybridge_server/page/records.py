"""The page's view of the ledger. Every function here blocks and is for a thread beside the loop's."""

import math
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import numpy as np

from policybridge_core.errors import InvalidError, NotFoundError, PreconditionError
from policybridge_serdes import Layout, Values
from policybridge_server.config import ServerConfig
from policybridge_server.ledger.place import parse_place
from policybridge_server.ledger.query import Query, SessionRecord
from policybridge_server.ledger.summary import Summary, open_summary
from policybridge_server.ledger.trajectory import DecisionBatch
from policybridge_server.repository.conditions import FAILED, parse_condition
from policybridge_server.repository.rollout import Rollout, RolloutStep
from policybridge_server.rollouts.comparison import compare

_MOST: Final = 500
"""Sessions or decisions in one answer."""

_STEPS: Final = 100
_OUTCOMES: Final = 12
_SAMPLES: Final = 1000
"""Of an interval that people look at again and again."""

_NO_COSTS: Final = ("object_digest", "exit_status", "headers", "sessions")
"""Numbers that our own clients report, and whose sums are meaningless."""

_VALUES: Final = 32
"""Numbers of one tensor that are shown."""

_EXACT: Final = 2**53
"""A browser's numbers are exact up to this one; larger ones are sent as text."""


class Records:
    """Reads the ledger of a server.

    Args:
        config: names the ledger.

    Raises:
        PreconditionError: from any method, the server has no ledger.
        UnavailableError: from any method, the ledger cannot be read.
        InvalidError: from any method, the ledger is damaged, or a query cannot be read.

    """

    def __init__(self, config: ServerConfig) -> None:
        self._place = config.ledger
        self._kind = config.ledger_store

    @property
    def _ledger(self) -> str:
        if self._place is None:
            raise PreconditionError("this server keeps no ledger; its operator asks for one with --ledger PATH")
        return self._place

    @contextmanager
    def _summary(self) -> Iterator[Summary]:
        with closing(open_summary(self._ledger, self._kind)) as summary:
            yield summary

    def ledger(self) -> dict[str, Any]:
        """Give the ledger's numbers, those of each version, and the last steps of roll-outs."""
        with self._summary() as summary:
            totals, versions = summary.totals()
            steps = summary.steps(None, _STEPS)
            size = summary.size()
        place = parse_place(self._ledger)
        return {
            "path": place.name if isinstance(place, Path) else str(place),
            "bytes": size,
            "totals": dict(totals),
            "versions": [asdict(each) for each in versions],
            "steps": [_step(step) for step in steps],
        }

    def sessions(self, asked: Mapping[str, str]) -> list[dict[str, Any]]:
        """Give sessions, the newest first, by a URL's query: `policy`, `version`, `status`, `label`, `before`."""
        query = Query(
            policy=asked.get("policy") or None,
            versions=_versions(asked.get("version", "")),
            labels=_label(asked.get("label", "")),
            status=asked.get("status") or None,
            session=asked.get("session") or None,
        )
        before = _number("before", asked["before"]) if asked.get("before") else None
        count = min(_number("count", asked.get("count", "100")), _MOST)
        with self._summary() as summary:
            return [_session(record, file) for record, file in summary.newest(query, before, count)]

    def session(self, session_id: str, asked: Mapping[str, str]) -> dict[str, Any]:
        """Give a session, and its decisions from step `from` on.

        Raises:
            NotFoundError: there is no such session.

        """
        first = _number("from", asked.get("from", "1"))
        count = min(_number("count", asked.get("count", "100")), _MOST)
        with self._summary() as summary:
            sessions = summary.newest(Query(session=session_id), None, 2)
            if len(sessions) != 1:
                count_of = len(sessions) or "no"
                raise NotFoundError(f"the ledger has {count_of} sessions whose ids begin with {session_id!r}")
            record, file = sessions[0]
            batches = summary.decisions(record, first, count)
            decisions = [decision for batch in batches for decision in _decisions(batch)]
        return {
            "session": _session(record, file),
            "decisions": [each for each in decisions if each["step"] >= first][:count],
        }

    def rollout(self, policy: str, rollout: Rollout) -> dict[str, Any]:
        """Give the outcomes of both versions of a roll-out, with intervals."""
        conditions = [parse_condition(text) for text in (*rollout.promote_if, *rollout.withdraw_if)]
        with self._summary() as summary:
            names = [condition.name for condition in conditions] + [FAILED]
            outcomes = summary.outcome_names(policy, rollout.version, _OUTCOMES)
            names += [name for name in outcomes if name not in _NO_COSTS]
            pairs = {name: summary.values(policy, rollout, name).pairs() for name in dict.fromkeys(names)}
            _, versions = summary.totals()
            steps = summary.steps(policy, _STEPS)
        changes = [compare(name, values, samples=_SAMPLES) for name, values in pairs.items()]
        both = (rollout.base, rollout.version)
        return {
            "changes": [asdict(change) for change in changes if change is not None],
            "files": len(pairs[FAILED]),
            "versions": [asdict(each) for each in versions if each.policy == policy and each.version in both],
            "steps": [_step(step) for step in steps],
        }


def _step(step: RolloutStep) -> dict[str, Any]:
    return {"policy": step.policy, "what": step.what, "at": step.when, "rollout": step.rollout}


def _session(record: SessionRecord, file: str) -> dict[str, Any]:
    state = "interrupted" if record.interrupted else "open" if record.closed is None else "closed"
    return {**record.to_json(), "file": file, "state": state}


def _decisions(batch: DecisionBatch) -> Iterator[dict[str, Any]]:
    for index in range(len(batch)):
        chance = float(batch.log_probabilities[index])
        yield {
            "step": int(batch.steps[index]),
            "context": str(batch.contexts[index]),
            "observation": _record(batch.signature.features, batch.observations[index : index + 1]),
            "advice": _record(batch.signature.advice_layout, batch.advices[index : index + 1]),
            "log_probability": chance if math.isfinite(chance) else None,
            "nanoseconds": int(batch.nanoseconds[index]),
        }


def _record(layout: Layout, values: Values) -> dict[str, Any]:
    return {spec.name: _tensor(values[spec.name][0]) for spec in layout.specs}


def _tensor(value: Any) -> Any:
    flat = np.asarray(value).reshape(-1)
    shown = [_plain(each) for each in flat[:_VALUES].tolist()]
    if len(flat) > _VALUES:
        return [*shown, f"… {len(flat) - _VALUES} more"]
    return shown[0] if len(shown) == 1 else shown


def _plain(value: Any) -> Any:
    """Give a value as JSON and a browser can hold it."""
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return str(value) if isinstance(value, int) and abs(value) > _EXACT else value


def _number(name: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise InvalidError(f"{name} is a number, not {text!r}")
    return int(text)


def _versions(text: str) -> tuple[int, int] | None:
    return (_number("version", text), _number("version", text)) if text else None


def _label(text: str) -> dict[str, str]:
    name, equals, value = text.partition("=")
    if text and not (name and equals):
        raise InvalidError(f"a label is NAME=VALUE, not {text!r}")
    return {name: value} if text else {}

"""Which tests can notice a change of which file: few and quick ones, so that hundreds of changes are affordable."""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

SERVER: Final = "server/policybridge_server"


def nodes(tests: str) -> tuple[str, ...]:
    """Give the tests as pytest names them: ``ledger/test_clock`` is a file, ``ledger/test_clock::test_NAME`` a test."""
    return tuple(map(_node, tests.split()))


def _node(test: str) -> str:
    file, colons, name = test.partition("::")
    return f"tests/server/{file}.py{colons}{name}"


_LEDGER: Final = """
ledger/test_conformance
ledger/test_transactions
ledger/test_clock
ledger/test_recording
ledger/test_identity
ledger/test_bounds
ledger/test_writer
"""
"""Of all that writes."""

_READING: Final = "ledger/test_listing ledger/test_conformance ledger/test_reading ledger/test_export"
"""Of all that reads a ledger."""

_PUBLISHING: Final = "publishing/test_steps publishing/test_publish"

_FOLDERS: Final = """
repository/test_checks
publishing/test_steps
publishing/test_number_steps
publishing/test_unreadable
publishing/test_retention
publishing/test_publish
"""
"""Of the repository's folders."""

_TESTS: Final = {
    "budget/memory.py": "transports/test_budgets transports/test_budget",
    "budget/turns.py": "transports/test_peer_turns transports/test_peer_order",
    "budget/work.py": "transports/test_peer_work",
    "counters.py": "telemetry/test_counters telemetry/test_metrics",
    "log.py": "telemetry/test_log",
    "systemd.py": "telemetry/test_systemd",
    "reloading.py": "access/test_tokens access/test_tls",
    "loop.py": "test_loop engine/test_batches transports/test_transports",
    "engine/admission.py": "transports/test_limits",
    "engine/batcher.py": "engine/test_batches telemetry/test_metrics engine/test_pace engine/test_misbehaving",
    "engine/binding.py": "engine/test_batches backends/test_backends",
    "engine/engine.py": "engine/test_batches telemetry/test_metrics ledger/test_recording",
    "engine/evaluator.py": "engine/test_batches engine/test_head backends/test_backends engine/test_misbehaving",
    "engine/failures.py": "engine/test_failures",
    "engine/head.py": "engine/test_head",
    "engine/loaded.py": "publishing/test_steps engine/test_batches grpc/test_unary_calls",
    "engine/loading.py": f"{_PUBLISHING} engine/test_misbehaving publishing/test_rehearsal",
    "engine/model_host.py": "engine/test_worker engine/test_model_host engine/test_pace engine/test_misbehaving",
    "engine/opener.py": "publishing/test_steps backends/test_backends publishing/test_rehearsal",
    "engine/pace.py": "engine/test_pace",
    "engine/probe.py": "backends/test_backends publishing/test_steps publishing/test_rehearsal",
    "engine/recorder.py": "ledger/test_recording",
    "engine/rehearsal.py": "publishing/test_rehearsal",
    "engine/single.py": "grpc/test_unary_calls",
    "engine/trials.py": "rollouts/test_failing rollouts/test_reporters",
    "engine/versions.py": "publishing/test_steps publishing/test_number_steps publishing/test_publish",
    "engine/worker.py": "engine/test_worker engine/test_misbehaving",
    "ledger/clock.py": "ledger/test_clock",
    "ledger/database.py": f"ledger/test_privacy {_LEDGER}",
    "ledger/export.py": "ledger/test_export ledger/test_contexts",
    "ledger/identity.py": "ledger/test_identity",
    "ledger/importing.py": "ledger/test_import",
    "ledger/lifetime.py": "ledger/test_clock",
    "ledger/listing.py": "ledger/test_listing",
    "ledger/packing.py": "ledger/test_packing",
    "ledger/place.py": _READING,
    "ledger/privacy.py": "ledger/test_privacy",
    "ledger/query.py": _READING,
    "ledger/reader.py": _READING,
    "ledger/recorder.py": _LEDGER,
    "ledger/retention.py": _LEDGER,
    "ledger/rows.py": _LEDGER,
    "ledger/sqlite_reader.py": _READING,
    "ledger/sqlite.py": f"{_LEDGER} rollouts/test_reporters",
    "ledger/table_reader.py": "ledger/test_conformance ledger/test_listing",
    "ledger/trajectory.py": _READING,
    "ledger/writer.py": _LEDGER,
    "access/access.py": "access/test_rules access/test_addresses access/test_tokens",
    "access/addresses.py": "access/test_addresses",
    "access/files.py": "access/test_tokens access/test_tls",
    "access/sockets.py": "access/test_sockets",
    "access/tls.py": "access/test_tls",
    "access/tokens.py": "access/test_rules access/test_tokens",
    "rollouts/comparison.py": "rollouts/test_comparison",
    "rollouts/failing.py": "rollouts/test_failing",
    "rollouts/judge.py": "rollouts/test_stands rollouts/test_reporters rollouts/test_failing publishing/test_rollouts",
    "publishing/compatibility.py": "publishing/test_steps publishing/test_publish",
    "publishing/descriptions.py": "publishing/test_steps",
    "publishing/numbering.py": "publishing/test_number_steps publishing/test_steps",
    "publishing/permission.py": "publishing/test_steps publishing/test_publish",
    "publishing/publication.py": f"{_PUBLISHING} publishing/test_meanwhile following/test_remote",
    "publishing/publisher.py": f"{_PUBLISHING} publishing/test_number_steps publishing/test_refusals",
    "publishing/retention.py": "publishing/test_number_steps publishing/test_retention",
    "publishing/rollouts.py": "publishing/test_rollout_steps publishing/test_steps publishing/test_rollouts",
    "publishing/watcher.py": "publishing/test_steps publishing/test_watcher",
    "repository/aliases.py": "repository/test_checks publishing/test_publish",
    "repository/checks.py": "repository/test_checks publishing/test_refusals",
    "repository/conditions.py": "rollouts/test_comparison publishing/test_rollouts",
    "repository/files.py": _FOLDERS,
    "repository/guessing.py": "repository/test_guessing",
    "repository/identity.py": "repository/test_identity",
    "repository/lock.py": _FOLDERS,
    "repository/numbers.py": "repository/test_checks following/test_epochs",
    "repository/reading.py": _FOLDERS,
    "repository/repository.py": f"{_FOLDERS} following/test_replicas",
    "repository/retired.py": "publishing/test_steps publishing/test_number_steps publishing/test_retention",
    "repository/rollout.py": "repository/test_checks publishing/test_rollback publishing/test_rollouts",
    "repository/staging.py": f"{_FOLDERS} publishing/test_crash",
    "repository/stored.py": _FOLDERS,
    "repository/toml.py": f"publishing/test_large_toml {_FOLDERS}",
}

TARGETS: Final = {f"{SERVER}/{path}": nodes(tests) for path, tests in _TESTS.items()}
"""A file of the server → its tests, the quickest first."""


def missing(root: Path, tests: Iterable[str] = ()) -> list[str]:
    """Give the files and tests that are named here, or are among ``tests``, and are not there."""
    named = {*TARGETS, *tests, *(test for tests in TARGETS.values() for test in tests)}
    return sorted(each for each in named if not _is_there(root, *each.split("::")))


def _is_there(root: Path, path: str, name: str = "") -> bool:
    return (root / path).is_file() and (not name or f"def {name}(" in (root / path).read_text())

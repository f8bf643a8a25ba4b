"""Which tests can notice a change of which file: few and quick ones, so that hundreds of changes are affordable."""

from pathlib import Path
from typing import Final

SERVER: Final = "server/policybridge_server"

_TESTS: Final = {
    "counters.py": "telemetry/test_counters telemetry/test_metrics",
    "engine/admission.py": "transports/test_limits",
    "engine/batcher.py": "engine/test_batches engine/test_pace",
    "engine/binding.py": "backends/test_backends engine/test_batches",
    "engine/engine.py": "engine/test_batches telemetry/test_metrics ledger/test_recording",
    "engine/evaluator.py": "engine/test_batches engine/test_head backends/test_backends",
    "engine/failures.py": "telemetry/test_log",
    "engine/head.py": "engine/test_head",
    "engine/pace.py": "engine/test_pace",
    "engine/place.py": "engine/test_pace engine/test_worker",
    "engine/single.py": "grpc/test_unary_calls",
    "engine/worker.py": "engine/test_worker",
    "ledger/clock.py": "ledger/test_clock",
    "ledger/database.py": "ledger/test_privacy ledger/test_identity ledger/test_bounds",
    "ledger/export.py": "ledger/test_export ledger/test_contexts",
    "ledger/identity.py": "ledger/test_identity",
    "ledger/importing.py": "ledger/test_import",
    "ledger/lifetime.py": "ledger/test_clock ledger/test_bounds",
    "ledger/packing.py": "ledger/test_packing",
    "ledger/privacy.py": "ledger/test_privacy",
    "ledger/recorder.py": "ledger/test_recording ledger/test_writer",
    "ledger/retention.py": "ledger/test_bounds ledger/test_clock",
    "ledger/rows.py": "ledger/test_conformance ledger/test_recording",
    "ledger/sqlite.py": "ledger/test_conformance ledger/test_recording",
    "ledger/table_reader.py": "ledger/test_conformance ledger/test_listing",
    "ledger/writer.py": "ledger/test_writer",
    "access/access.py": "access/test_tokens access/test_addresses",
    "access/addresses.py": "access/test_addresses",
    "access/files.py": "access/test_tokens access/test_tls",
    "access/sockets.py": "access/test_sockets",
    "access/tls.py": "access/test_tls",
    "access/tokens.py": "access/test_tokens",
    "rollouts/comparison.py": "rollouts/test_comparison",
    "rollouts/judge.py": "publishing/test_rollouts",
    "publishing/compatibility.py": "publishing/test_refusals publishing/test_meanwhile",
    "publishing/permission.py": "publishing/test_publish publishing/test_refusals",
    "publishing/publication.py": "publishing/test_publish publishing/test_refusals publishing/test_meanwhile",
    "publishing/publisher.py": "publishing/test_publish publishing/test_refusals publishing/test_rollback",
    "publishing/retention.py": "publishing/test_retention",
    "publishing/rollouts.py": "publishing/test_rollouts",
    "publishing/watcher.py": "publishing/test_watcher",
}

TARGETS: Final = {
    f"{SERVER}/{path}": [f"tests/server/{test}.py" for test in tests.split()] for path, tests in _TESTS.items()
}
"""A file of the server → its tests, the quickest first."""


def missing(root: Path) -> list[str]:
    """Give the files that are named here and are not there."""
    named = {*TARGETS, *(test for tests in TARGETS.values() for test in tests)}
    return sorted(path for path in named if not (root / path).is_file())

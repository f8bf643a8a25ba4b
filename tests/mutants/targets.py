"""Which tests can notice a change of which file: few and quick ones, so that hundreds of changes are affordable."""

from pathlib import Path
from typing import Final

SERVER: Final = "server/policybridge_server"


def _node(test: str) -> str:
    file, colons, name = test.partition("::")
    return f"tests/server/{file}.py{colons}{name}"


_LEDGER: Final = """
ledger/test_bounds::test_a_record_that_cannot_be_kept_costs_only_its_own_session
ledger/test_bounds::test_a_store_that_cannot_keep_up_costs_decisions_of_the_record_and_says_so
ledger/test_bounds::test_what_could_not_be_written_is_not_acknowledged_and_is_written_when_there_is_room_again
ledger/test_bounds::test_within_its_bounds_nothing_is_dropped
ledger/test_identity::test_a_second_writer_is_refused_under_every_name_of_the_ledger
ledger/test_identity::test_a_program_that_holds_the_ledger_locked_is_told_in_words
ledger/test_identity::test_what_a_kill_left_of_a_ledger_in_the_making_is_cleared_away
ledger/test_privacy
ledger/test_writer::test_a_record_that_the_tables_refuse_costs_no_other_one
ledger/test_writer::test_a_session_is_read_whole_though_it_is_dropped_meanwhile
ledger/test_writer::test_a_session_that_is_dropped_before_it_is_read_is_an_error_and_is_skipped_among_others
ledger/test_writer::test_what_waits_for_a_full_disk_is_bounded_in_memory_and_never_was_acknowledged
ledger/test_writer::test_retention_drops_no_more_sessions_than_it_must_where_they_are_large
ledger/test_writer::test_a_log_that_a_reader_holds_is_told_and_is_cut_when_the_reader_ends
ledger/test_clock
ledger/test_conformance
ledger/test_recording
"""
"""Of all that writes."""

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
    "engine/model_host.py": "engine/test_pace engine/test_worker",
    "engine/single.py": "grpc/test_unary_calls",
    "engine/worker.py": "engine/test_worker",
    "ledger/clock.py": "ledger/test_clock",
    "ledger/database.py": _LEDGER,
    "ledger/export.py": "ledger/test_export ledger/test_contexts",
    "ledger/identity.py": "ledger/test_identity",
    "ledger/importing.py": "ledger/test_import",
    "ledger/lifetime.py": _LEDGER,
    "ledger/packing.py": "ledger/test_packing",
    "ledger/privacy.py": "ledger/test_privacy",
    "ledger/recorder.py": _LEDGER,
    "ledger/retention.py": _LEDGER,
    "ledger/rows.py": _LEDGER,
    "ledger/sqlite.py": _LEDGER,
    "ledger/table_reader.py": "ledger/test_conformance ledger/test_listing",
    "ledger/writer.py": _LEDGER,
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

TARGETS: Final = {f"{SERVER}/{path}": [_node(test) for test in tests.split()] for path, tests in _TESTS.items()}
"""A file of the server → its tests, the quickest first."""


def missing(root: Path) -> list[str]:
    """Give the files that are named here and are not there."""
    named = {*TARGETS, *(test for tests in TARGETS.values() for test in tests)}
    return sorted(each for each in named if not _is_there(root, *each.split("::")))


def _is_there(root: Path, path: str, name: str = "") -> bool:
    return (root / path).is_file() and (not name or f"def {name}(" in (root / path).read_text())

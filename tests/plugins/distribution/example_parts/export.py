"""An export of the ledger: comma-separated values."""

import csv
from pathlib import Path

from policybridge_server.ledger.query import Query
from policybridge_server.ledger.reader import LedgerReader


def export_csv(reader: LedgerReader, query: Query, target: Path, _score: str | None) -> int:
    """Write a line for each decision: its session and its step. Give the number of decisions."""
    with target.open("w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(["policy", "step"])
        count = 0
        for batch in reader.batches(query):
            for row, step in enumerate(batch.steps.tolist()):
                lines.writerow([batch.sessions[batch.session[row]].policy.name, step])
                count += 1
    return count

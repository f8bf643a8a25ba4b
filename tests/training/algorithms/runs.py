"""Runs of ``policybridge train`` in this process, and their records."""

import argparse
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

from policybridge_train import train_command
from policybridge_train.learning.record import Iteration, Record


def train(algorithm: str, task: str, folder: Path, *options: str) -> tuple[int, str]:
    """Train, and give the exit status and the output."""
    words = [task, "--algo", algorithm, "--output", str(folder), "--jobs", "2", *options]
    parser = argparse.ArgumentParser()
    train_command.add_arguments(parser)
    with redirect_stdout(StringIO()) as said, redirect_stderr(said):
        status = train_command.run(parser.parse_args(words))
    return status, said.getvalue()


def iterations(folder: Path) -> list[Iteration]:
    """Give the iterations that a run has recorded."""
    with Record(folder / "run.db", {}) as record:
        return record.iterations()

"""The checked-in stubs are those of the .proto files."""

import subprocess
import sys
from pathlib import Path

GENERATOR = Path(__file__).parents[1] / "proto" / "generate.py"


def test_the_checked_in_stubs_are_fresh() -> None:
    check = subprocess.run([sys.executable, GENERATOR, "--check"], capture_output=True, text=True, check=False)
    assert check.returncode == 0, check.stderr

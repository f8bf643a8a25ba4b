"""``make dist``: what it removes, and the files of its packages."""

import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

from tests.needs import ROOT


def test_only_earlier_packages_are_removed_and_others_may_read_the_new_ones(tmp_path: Path) -> None:
    old = [tmp_path / name for name in ("policybridge-0.0.1.tar.gz", "policybridge_run-0.0.1-py3-none-any.whl")]
    notes = tmp_path / "policybridge.txt"
    for file in (*old, notes):
        file.touch()
    make = [sys.executable, str(ROOT / "distribution" / "make.py"), "--only", "python", "--output", str(tmp_path)]
    before = os.umask(0o077)
    try:
        done = subprocess.run(make, capture_output=True, text=True, check=False)
    finally:
        os.umask(before)
    assert done.returncode == 0, done.stderr
    assert notes.exists()
    assert not any(file.exists() for file in old)
    wheels = list(tmp_path.glob("*.whl"))
    assert len(wheels) == 2
    assert all(file.stat().st_mode & 0o444 == 0o444 for file in wheels)
    for wheel in wheels:
        assert any("/licenses/" in name for name in ZipFile(wheel).namelist())

"""A leader and its replicas under load, with kill −9: every session is on one version, and all is there in the end."""

import json
import subprocess
import sys


def test_killed_leaders_and_replicas_lose_no_version_and_mix_none() -> None:
    options = "--replicas 2 --publications 8 --every 0.1 --decisions 20 --kills 3 --between 0.3"
    command = [sys.executable, "-m", "tests.replicas", *options.split()]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    told = json.loads(ran.stdout)
    assert told["faults"] == []
    assert told["publications"] >= 8
    assert told["sessions"] >= 3

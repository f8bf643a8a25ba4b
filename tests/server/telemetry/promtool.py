"""Prometheus's own checker, which Debian's package `prometheus` has."""

import os
import shutil
import subprocess

import pytest


def promtool(*arguments: object, given: str | None = None) -> None:
    """Run it; what it finds fault with fails the test."""
    tool = shutil.which("promtool")
    if tool is None:
        if os.environ.get("POLICYBRIDGE_REQUIRE_NATIVE") == "1":
            pytest.fail("no promtool (Debian: prometheus), and POLICYBRIDGE_REQUIRE_NATIVE=1", pytrace=False)
        pytest.skip("no promtool (Debian: prometheus)")
    words = [tool, *map(str, arguments)]
    ran = subprocess.run(words, check=False, input=given, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stdout + ran.stderr

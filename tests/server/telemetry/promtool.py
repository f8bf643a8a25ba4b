"""Prometheus's own checker, which Debian's package `prometheus` has."""

import os
import shutil
import subprocess

import pytest


def needed(program: str) -> str:
    """Give the path of a program of Debian's package `prometheus`; without it the test is skipped."""
    path = shutil.which(program)
    if path is None:
        if os.environ.get("POLICYBRIDGE_REQUIRE_NATIVE") == "1":
            pytest.fail(f"no {program} (Debian: prometheus), and POLICYBRIDGE_REQUIRE_NATIVE=1", pytrace=False)
        pytest.skip(f"no {program} (Debian: prometheus)")
    return path


def promtool(*arguments: object, given: str | None = None) -> None:
    """Run it; what it finds fault with fails the test."""
    words = [needed("promtool"), *map(str, arguments)]
    ran = subprocess.run(words, check=False, input=given, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stdout + ran.stderr

"""Generated stubs whose runtime another package has replaced by an older one."""

import subprocess
import sys

import pytest

from policybridge_core.stubs import stub_mismatch

# The runtime says that it is an older one; the stubs check that when they are imported.
_OLDER = """
import sys
from google.protobuf import runtime_version
runtime_version.MAJOR, runtime_version.MINOR, runtime_version.PATCH = 5, 20, 3
from policybridge_client.cli import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize(
    "command", [["serve", "--repository", ".", "--grpc", "127.0.0.1:0"], ["policies", "list", "--server", "grpc:a:1"]]
)
def test_a_command_names_the_versions_and_what_mends_it_instead_of_a_traceback(command: list[str]) -> None:
    words = [sys.executable, "-c", _OLDER, *command]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "the installed protobuf 5.20.3 does not fit: the stubs of " in done.stderr
    assert "Mend it by: pip install 'protobuf>=" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_runtime_from_before_such_checks_is_told_too() -> None:
    error = ImportError("cannot import name 'runtime_version' from 'google.protobuf'", name="google.protobuf")
    assert "PolicyBridge's stubs need 5.27.2 or newer" in (stub_mismatch(error) or "")


def test_an_older_grpcio_is_told_too() -> None:
    error = RuntimeError(
        "The grpc package installed is at version 1.60.0, but the generated code in policy_service_pb2_grpc.py depends "
        "on grpcio>=1.66.2. Please upgrade your grpc module to grpcio>=1.66.2"
    )
    told = stub_mismatch(error) or ""
    assert "grpcio 1.60.0 does not fit: the stubs in policy_service_pb2_grpc.py need 1.66.2 or newer" in told
    assert "pip install 'grpcio>=1.66.2'" in told


@pytest.mark.parametrize("error", [ImportError("no module"), RuntimeError("broken"), ValueError("gencode 1 runtime 2")])
def test_other_errors_are_left_alone(error: Exception) -> None:
    assert stub_mismatch(error) is None

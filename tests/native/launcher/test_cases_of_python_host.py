"""The tests of the Python host, run with the launcher: it fails and succeeds as ``policybridge run`` does."""

import pytest

from tests.client import test_llvm_failures as failures
from tests.client.test_llvm_failures import peers
from tests.client.test_llvm_host import (
    test_a_command_that_asks_nothing_is_the_bare_compilers,
    test_a_compiler_that_is_not_there_is_127_as_in_a_shell,
    test_a_link_is_the_bare_compilers,
    test_a_source_from_stdin_is_compiled,
    test_kinds_of_decisions_that_llvm_does_not_ask_for_are_told,
    test_the_statistics_file_says_what_happened,
)

__all__ = [
    "peers",
    "test_a_command_that_asks_nothing_is_the_bare_compilers",
    "test_a_compiler_that_is_not_there_is_127_as_in_a_shell",
    "test_a_link_is_the_bare_compilers",
    "test_a_source_from_stdin_is_compiled",
    "test_kinds_of_decisions_that_llvm_does_not_ask_for_are_told",
    "test_the_statistics_file_says_what_happened",
]

pytestmark = pytest.mark.usefixtures("launched")


class TestNoServer(failures.TestNoServer):
    """No server listens from the start."""


class TestPolicyFails(failures.TestPolicyFails):
    """The server answers that there is no advice."""


class TestIllegalAdvice(failures.TestIllegalAdvice):
    """Advice on which LLVM would crash never reaches LLVM."""


class TestServerDies(failures.TestServerDies):
    """The server is killed in the middle of a decision."""


class TestSlowServer(failures.TestSlowServer):
    """The server is reached, and does not answer as it should."""


class TestAnyCommand(failures.TestAnyCommand):
    """A build that passes without the launcher passes with it."""


class TestGrowth(failures.TestGrowth):
    """A policy that always inlines."""


class TestHostEnds(failures.TestHostEnds):
    """A signal ends the launcher while the compiler waits for advice."""

"""The command ``policybridge run``: run a compiler with the decisions of a policy."""

import argparse
import sys
from typing import Final

from policybridge_client.llvm.compilers import CompilerCommand
from policybridge_client.llvm.launcher import become_launcher
from policybridge_client.llvm.run_arguments import add_arguments, check_arguments
from policybridge_client.llvm.signals import Interrupted
from policybridge_client.llvm.task_table import asks_to_inline
from policybridge_core.errors import PolicyBridgeError
from policybridge_core.lacking import lacking
from policybridge_core.terminal import complain

__all__ = ["add_arguments", "run"]

_NOT_FOUND: Final = 127
_NOT_STARTED: Final = 126
_USAGE: Final = 2


def run(arguments: argparse.Namespace) -> int:
    """Run the compiler; return its exit status."""
    compiler = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    try:
        optional = bool(compiler) and arguments.policy is None and arguments.decisions is None
        check_arguments(arguments)
        # A program that calls this command in its own process is not replaced.
        if sys.argv[1:2] == ["run"] and (not optional or asks_to_inline(compiler)):
            become_launcher(sys.argv[2:], CompilerCommand.of(compiler), arguments.task, arguments.server)
        # Only now: it needs numpy, whose 100 ms a compile by the launcher shall not pay.
        from policybridge_client.llvm.hosting import host  # noqa: PLC0415

        return host(compiler, arguments, optional=optional)
    except Interrupted as signal:
        return 128 + signal.number
    except PolicyBridgeError as error:
        return _fail(str(error), _USAGE)
    except FileNotFoundError as error:
        missing = f"there is no program {error.filename!r}: give the compiler's name or path behind --"
        return _fail(lacking(missing), _NOT_FOUND)
    except OSError as error:
        return _fail(str(error), _NOT_STARTED)


def _fail(message: str, status: int) -> int:
    complain(f"policybridge run: {message}")
    return status

"""The table of tasks: a command line is checked against it without importing a task, which needs numpy."""

from collections.abc import Sequence
from typing import Final

from policybridge_client.llvm.compilers import CompilerCommand, Kind
from policybridge_core.errors import InvalidError
from policybridge_core.plugins import Table

TASKS: Final = Table(
    kind="task",
    group="policybridge.tasks",
    own={
        "inline": "policybridge_client.llvm.tasks:INLINE",
        "evict": "policybridge_client.llvm.tasks:EVICT",
        "priority": "policybridge_client.llvm.tasks:PRIORITY",
    },
)

DEFAULT: Final = "inline"
"""The task of a command line that names none."""

INLINING: Final = frozenset({Kind.CLANG, Kind.CC1, Kind.ZIG, Kind.OPT})
"""The kinds of compilers that ask about inlining."""


def asks_to_inline(command: Sequence[str]) -> bool:
    """Whether a command is that of a compiler that asks about inlining."""
    try:
        return CompilerCommand.of(command).kind in INLINING
    except InvalidError:
        return False

"""Flags and environment variables that make a compiler ask for advice."""

from pathlib import Path

from policybridge_client.llvm.compilers import Kind
from policybridge_client.llvm.defaults import Defaults
from policybridge_client.llvm.tasks import INLINE, Task


def asking_flags(task: Task, base: str, growth_limit: str, defaults: Defaults) -> list[str]:
    """Return LLVM's flags for a channel at ``base``."""
    flags = [flag.format(base=base) for flag in task.flags]
    if task.name == INLINE.name:
        # Beyond LLVM's own limit nothing is inlined. So it is used only if LLVM's decisions are unknown; else `Growth`
        # limits.
        flags.append(f"-ml-advisor-size-increase-threshold={'inf' if defaults.known else growth_limit}")
    return [*flags, *defaults.flags]


def asking_variables(kind: Kind, folder: Path) -> dict[str, str]:
    """Return the environment variables for the compiler; ``folder`` is the channel's folder."""
    # An object of a policy must neither come from a cache nor be stored in one.
    variables = {"CCACHE_DISABLE": "1"}
    if kind is Kind.ZIG:
        variables["ZIG_LOCAL_CACHE_DIR"] = str(folder / "zig")
    return variables

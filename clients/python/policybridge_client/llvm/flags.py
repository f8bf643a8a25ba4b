"""What a compiler is told so that it asks, beside its own arguments."""

from pathlib import Path

from policybridge_client.llvm.compilers import Kind
from policybridge_client.llvm.defaults import Defaults
from policybridge_client.llvm.tasks import INLINE, Task


def asking_flags(task: Task, base: str, growth_limit: str, defaults: Defaults) -> list[str]:
    """Give LLVM's flags for a channel at ``base``."""
    flags = [flag.format(base=base) for flag in task.flags]
    if task.name == INLINE.name:
        flags.append(f"-ml-advisor-size-increase-threshold={growth_limit}")
    return [*flags, *defaults.flags]


def asking_variables(kind: Kind, folder: Path) -> dict[str, str]:
    """Give the environment that goes with them; ``folder`` is the channel's own."""
    # An object made under a policy must neither come from a cache nor stay in one.
    variables = {"CCACHE_DISABLE": "1"}
    if kind is Kind.ZIG:
        variables["ZIG_LOCAL_CACHE_DIR"] = str(folder / "zig")
    return variables

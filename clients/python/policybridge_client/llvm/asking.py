"""Starting a compiler that asks for advice: its flags, its environment variables and its channel."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from policybridge_client.llvm.channel import Channel
from policybridge_client.llvm.compilers import CompilerCommand, Kind
from policybridge_client.llvm.defaults import Defaults
from policybridge_client.llvm.process import CompilerProcess, Surroundings, Watchdog
from policybridge_client.llvm.signals import Interrupts
from policybridge_client.llvm.tasks import INLINE, Task


@contextmanager
def asking(  # noqa: PLR0913, PLR0917 - the parts of one compilation
    compiler: CompilerCommand,
    task: Task,
    growth_limit: str,
    defaults: Defaults,
    surroundings: Surroundings,
    interrupts: Interrupts,
) -> Iterator[tuple[CompilerProcess, Channel]]:
    """Start a compiler that asks; end it after the block if it still runs.

    Raises:
        UnavailableError: the channel cannot be made.
        OSError: the compiler cannot be started.

    """
    with interrupts.guarded() as stack:
        with interrupts.held():
            channel = stack.enter_context(Channel())
            command = compiler.with_flags(asking_flags(task, channel.base, growth_limit, defaults))
            variables = asking_variables(compiler.kind, channel.folder)
            process = stack.enter_context(CompilerProcess(command, surroundings, variables))
            with suppress(OSError):
                # The watchdog only cleans up after a killed host; go on without it.
                stack.enter_context(Watchdog(process.group, channel.folder))
        yield process, channel


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

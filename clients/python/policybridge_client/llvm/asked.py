"""Compilers that ask: starting and serving one, and compiling once with given decisions and no plugin.

`asked` is for compilers that load no plugin: the interactive mode sends the features of each call, and LLVM's remarks
add the names.
"""

import select
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from subprocess import DEVNULL
from time import monotonic
from typing import Final

import numpy as np

from policybridge_client.decisions.keys import FeaturesKeys
from policybridge_client.decisions.sites import Numbers, SiteLog
from policybridge_client.llvm.compilers import CompilerCommand, Kind, source_of
from policybridge_client.llvm.inliner import (
    INLINING_DEFAULT,
    Defaults,
    Remark,
    aligned,
    defaults_of,
    remark_words,
    remarks_in,
)
from policybridge_client.llvm.process import KEPT_OUTPUT, Channel, CompilerProcess, Watchdog
from policybridge_client.llvm.signals import AWAKE_WITHIN
from policybridge_client.llvm.surroundings import CompilerLimits, Surroundings
from policybridge_client.llvm.tasks import INLINE, Task
from policybridge_core.errors import InvalidError, PreconditionError
from policybridge_serdes import Signature, Values
from policybridge_serdes.interactive import Event, Header, InteractiveReader

_ALIASES: Final = {
    "cost": "cost_estimate",
    "callee_uses": "callee_users",
    "callee_blocks": "callee_basic_block_count",
    "constant_arguments": "nr_ctant_params",
}
"""Columns of the plugin's log that are features under other names."""


def check_asks(kind: Kind, task: Task) -> None:
    """Raise `InvalidError` if a compiler of this kind never asks about the task."""
    if kind not in task.compilers:
        known = ", ".join(sorted(each.value for each in task.compilers))
        raise InvalidError(f"{kind.value} never asks about the task {task.name!r}; it is asked by {known}")


def start_asking(  # noqa: PLR0913, PLR0917 - the parts of one compilation
    stack: ExitStack,
    compiler: CompilerCommand,
    task: Task,
    growth_limit: str,
    defaults: Defaults,
    surroundings: Surroundings,
    frontend: Sequence[str] = (),
) -> tuple[CompilerProcess, Channel]:
    """Start a compiler that asks. Closing the stack ends it if it still runs.

    ``frontend`` are further words; see `CompilerCommand.with_flags`.

    Raises:
        UnavailableError: the channel cannot be made.
        OSError: the compiler cannot be started.

    """
    channel = stack.enter_context(Channel())
    command = compiler.with_flags(asking_flags(task, channel.base, growth_limit, defaults), frontend)
    variables = asking_variables(compiler.kind, channel.folder)
    process = stack.enter_context(CompilerProcess(command, surroundings, variables))
    with suppress(OSError):
        # The watchdog only cleans up after a killed host; go on without it.
        stack.enter_context(Watchdog(process.group, channel.folder))
    return process, channel


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


def serve(process: CompilerProcess, channel: Channel, answer: Callable[[Event], None]) -> None:
    """Pass LLVM's events to ``answer`` until the compiler has exited, or its time limit is reached.

    The pipes never report an end; see `Channel`.

    Raises:
        InvalidError: LLVM breaks the protocol.

    """
    end, ended = monotonic() + process.seconds_left, process.fileno()
    reader = InteractiveReader()
    poll = select.poll()
    for source in (ended, channel.fileno()):
        poll.register(source, select.POLLIN)
    while (left := end - monotonic()) > 0:
        ready = [descriptor for descriptor, _ in poll.poll(min(left, AWAKE_WITHIN) * 1000)]
        if ended in ready:
            return
        for event in reader.feed(channel.read()) if ready else ():
            answer(event)


@dataclass(frozen=True, eq=False)
class Asked:
    """A compilation that has ended.

    Attributes:
        status: the compiler's exit status, or 128 + n if signal n ended it.
        late: whether it was ended at the time limit.
        seconds: its processor time.
        message: the compiler's output.
        log: its requests, by sequence. Besides the known columns of the plugin's log, the log's ``numbers`` have all
            features by LLVM's names. An unknown name is empty.

    """

    status: int
    late: bool
    seconds: float
    message: str
    log: SiteLog

    @property
    def ok(self) -> bool:
        """Whether there is an object."""
        return not self.status and not self.late


def asked(
    command: Sequence[str],
    decisions: Mapping[str, bool],
    surroundings: Surroundings | None = None,
    version: int | None = None,
) -> Asked:
    """Compile with these decisions, and LLVM's own for all other calls; the remarks do not change the object.

    Args:
        command: a compiler and its arguments: clang, ``clang -cc1``, opt, or zig's; it compiles one module.
        decisions: whether to inline, by the decision's name (`FeaturesKeys`), ``KEY.N``.
        surroundings: the compiler's folder, environment and limits (by default `CompilerLimits`); its streams are not
            used.
        version: LLVM's major version; ``None``: the compiler is asked.

    Raises:
        InvalidError: the command starts no known compiler, or the compiler breaks the protocol.
        PreconditionError: LLVM's own decisions are not known: LLVM 20 and older tell them at -Oz only; or the command
            compiles several modules.
        OSError: the compiler cannot be started.

    """
    compiler = CompilerCommand.of(command)
    check_asks(compiler.kind, INLINE)
    defaults = defaults_of(compiler, INLINE, version)
    if not defaults.known:
        raise PreconditionError("LLVM's own decisions are not known: before LLVM 21 it tells them at -Oz only")
    given = surroundings or Surroundings()
    with tempfile.TemporaryDirectory(prefix="policybridge-") as folder, tempfile.TemporaryFile() as said:
        around = replace(given, stdin=DEVNULL, stdout=said, stderr=said, limits=given.limits or CompilerLimits())
        remarks = Path(folder) / "remarks.yaml"
        naming = remark_words(compiler.kind, remarks)
        answers = _Answers(compiler, decisions, defaults)
        with ExitStack() as stack:
            process, channel = start_asking(stack, compiler, INLINE, "inf", defaults, around, naming)
            serve(process, channel, lambda event: answers.answer(event, channel))
            status = process.wait()
        said.seek(0)
        message = said.read(KEPT_OUTPUT).decode(errors="replace").strip()
        return Asked(status, process.late, process.cpu_seconds, message, answers.log(remarks_in(remarks)))


@dataclass
class _Answers:
    """Answers the events of one compiler, and keeps its questions."""

    compiler: CompilerCommand
    decisions: Mapping[str, bool]
    defaults: Defaults
    _signature: Signature | None = None
    _namer: FeaturesKeys | None = None
    _keys: list[str] = field(default_factory=list)
    _taken: list[bool] = field(default_factory=list)
    _payloads: list[bytes] = field(default_factory=list)

    def answer(self, event: Event, channel: Channel) -> None:
        if isinstance(event, Header):
            if self._signature is not None:
                raise PreconditionError("the command compiles several modules; give one at a time")
            self._signature = self.defaults.extended(event.signature)
            self._namer = FeaturesKeys(event.signature)
        elif isinstance(event, bytes):
            channel.reply(self._decide(event))

    def _decide(self, payload: bytes) -> bytes:
        if self._signature is None or self._namer is None:
            raise InvalidError("an observation came before the header line with the features")
        key = self._namer.next(payload)
        whole = self.defaults.completed(payload)
        chosen = self.decisions.get(key)
        if chosen is None:
            chosen = bool(_one(self._signature, whole)[INLINING_DEFAULT.name].any())
        self._keys.append(key)
        self._taken.append(chosen)
        self._payloads.append(whole)
        return int(chosen).to_bytes(self._signature.advice_layout.size, "little")

    def log(self, remarks: Sequence[Remark]) -> SiteLog:
        features = self._features()
        rows = np.stack(list(features.values()), axis=1) if features else np.zeros((0, 0))
        aligned_remarks = aligned(remarks, self._taken, rows)
        empty = [""] * len(self._keys)
        default = features.get(INLINING_DEFAULT.name, np.zeros(0)) != 0
        taken = np.array(self._taken, np.bool_)
        inlined = np.array([each is not None and each.inlined for each in aligned_remarks], np.bool_)
        numbers = {name: values for name, values in features.items() if name != INLINING_DEFAULT.name}
        numbers |= {name: numbers[other] for name, other in _ALIASES.items() if other in numbers}
        return SiteLog(
            "sequence",
            None,
            self.compiler.level,
            source_of(self.compiler.arguments),
            len(self.decisions.keys() & set(self._keys)),
            len(self.decisions),
            self._keys,
            default,
            taken,
            inlined,
            [each.caller if each else "" for each in aligned_remarks],
            empty,
            [each.callee if each else "" for each in aligned_remarks],
            empty,
            numbers,
        )

    def _features(self) -> dict[str, Numbers]:
        if self._signature is None:
            return {}
        table: Values = np.frombuffer(b"".join(self._payloads), self._signature.features.dtype)
        names = table.dtype.names or ()
        scalars = [name for name in names if table[name].size == len(table)]
        return {name: table[name].reshape(-1).astype(np.float64) for name in scalars}


def _one(signature: Signature, payload: bytes) -> Values:
    return np.ndarray(1, signature.features.dtype, payload)

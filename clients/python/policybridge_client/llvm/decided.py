"""Running a compiler with the decisions of a store: by the plugin where there is one, else in the interactive mode."""

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any, Final, Literal

import msgspec

from policybridge_client.decisions.answering import StoreConnection
from policybridge_client.decisions.files import path_in_store, read_limited
from policybridge_client.decisions.format import parse_store
from policybridge_client.decisions.store import By, Heading, Section, Store
from policybridge_client.llvm.asked import level_of
from policybridge_client.llvm.compilers import CompilerCommand, Kind
from policybridge_client.llvm.config import GROWTH_LIMIT, HostConfig
from policybridge_client.llvm.defaults import defaults_of
from policybridge_client.llvm.host import run_compiler
from policybridge_client.llvm.plugins import find_plugin, loads_early
from policybridge_client.llvm.process import CompilerProcess, Surroundings
from policybridge_client.llvm.signals import Interrupts
from policybridge_client.llvm.sources import compiles, source_of
from policybridge_client.llvm.statistics import FAILED, CompilationStatistics, Fallback, Report
from policybridge_client.llvm.tasks import INLINE
from policybridge_client.llvm.versions import llvm_version
from policybridge_core.errors import PolicyBridgeError

_NAME: Final = "decisions"
_UNSEEING: Final = "sccache"
"""A cache of compilers that can be told of no file besides the sources."""

_ONLY_COMPILES: Final = ("-c", "-S", "-E", "-fsyntax-only", "-cc1")


@dataclass(frozen=True)
class DecisionsConfig:
    """How a store is applied.

    Attributes:
        store: the file.
        plugins: a folder of plugins, looked into first.
        fallback: what a store that cannot be read does: ``default``: LLVM's own decisions stand in; ``error``: nothing
            is compiled.
        growth_limit: as in `HostConfig`; against a store that inlines everything.

    """

    store: Path
    plugins: Path | None = None
    fallback: Literal["default", "error"] = "default"
    growth_limit: float = GROWTH_LIMIT


@dataclass(frozen=True)
class Applied:
    """How much of a store applied to a compilation.

    Attributes:
        path: the store's.
        module: the source.
        exact: whether the module is, by its digest, the one that was tuned; never known in the interactive mode.
        applied: the number of decisions that applied.
        unmatched: the number of the section's decisions about which the compiler did not ask.

    """

    path: str
    module: str
    exact: bool
    applied: int
    unmatched: int


@dataclass(frozen=True)
class Decided:
    """The result of a compilation with a store.

    Attributes:
        report: the compilation's.
        applied: ``None`` if no section is for the compilation, or a compiler's cache had the object.
        message: one line for people; empty where all is well.

    """

    report: Report
    applied: Applied | None = None
    message: str = ""

    def to_json(self) -> Mapping[str, object]:
        """Return the content of the statistics file."""
        store = vars(self.applied) if self.applied else None
        return {**self.report.to_json(), "policy": None, "sessions": [], "store": store}


def run_with_decisions(
    command: Sequence[str],
    config: DecisionsConfig,
    surroundings: Surroundings | None = None,
    *,
    interrupts: Interrupts | None = None,
) -> Decided:
    """Run a compiler with the decisions of a store.

    Args:
        command: the compiler and its arguments, as without PolicyBridge.
        config: the store.
        surroundings: the compiler's folder, environment and streams.
        interrupts: for programs that turn signals into exceptions.

    Raises:
        InvalidError: the command starts no known compiler, or one that never inlines.
        OSError: the compiler cannot be started.

    """
    compiler = CompilerCommand.of(command)
    INLINE.check(compiler.kind)
    run = _Run(compiler, config, surroundings or Surroundings(), interrupts or Interrupts())
    return run.decided()


@dataclass(frozen=True)
class _Run:
    compiler: CompilerCommand
    config: DecisionsConfig
    surroundings: Surroundings
    interrupts: Interrupts

    def decided(self) -> Decided:
        # opt reads its standard input where no file is named.
        if self.compiler.kind is not Kind.OPT and not compiles(self.compiler.arguments):
            return Decided(self._plainly())
        try:
            data = read_limited(self.config.store, "store of decisions")
            plugin = find_plugin(self.compiler, self.config.plugins)
            if plugin and b" by=sequence " not in data:
                return self._by_plugin(plugin)
            store = parse_store(data, str(self.config.store))
        except PolicyBridgeError as error:
            return self._without(error)
        section = self._section(store, "sequence")
        if plugin and (section is None or self._section(store, "site")):
            return self._by_plugin(plugin)
        if section is None:
            return Decided(self._plainly(), None, self._unused(store))
        return self._interactive(section)

    def _without(self, error: PolicyBridgeError) -> Decided:
        if self.config.fallback == "error":
            return Decided(self._report(FAILED, 0, error=error), None, f"no decisions, and nothing compiled: {error}")
        fallback = Fallback(str(error), error.status)
        return Decided(
            replace(self._plainly(), fallback=fallback), None, f"all decisions are the compiler's own: {error}"
        )

    def _unused(self, store: Store) -> str:
        section = self._section(store, "site")
        if section is None or not _ends_with(section.heading.path, self._path):
            return ""
        return (
            f"all decisions are the compiler's own: {self.config.store.name} has those of {section.heading.path} by "
            "site, and there is no plugin that this compiler loads (--plugins)"
        )

    @property
    def _path(self) -> str:
        source = source_of(self.compiler.arguments)
        return path_in_store(Path(self.surroundings.cwd or ".") / source, self.config.store) if source else ""

    def _section(self, store: Store, by: By) -> Section | None:
        major = llvm_version(self.compiler.start)
        return store.section_for(Heading(major, level_of(self.compiler), by, None, self._path))

    def _report(self, status: int, seconds: float, *, error: PolicyBridgeError | None = None) -> Report:
        words = [*self.compiler.start, *self.compiler.arguments]
        return Report(words, INLINE.name, status, seconds, CompilationStatistics(), None, error)

    def _plainly(self) -> Report:
        return self._started([*self.compiler.start, *self.compiler.arguments], {})

    def _started(self, words: Sequence[str], variables: Mapping[str, str]) -> Report:
        begun = perf_counter()
        with ExitStack() as stack:
            try:
                with self.interrupts.held():
                    process = stack.enter_context(CompilerProcess(words, self.surroundings, variables))
                status = process.wait()
            finally:
                with self.interrupts.held():
                    stack.close()
        return self._report(status, perf_counter() - begun)

    def _by_plugin(self, plugin: Path) -> Decided:
        compiler = self._seen_by_caches()
        flags = [
            f"-policybridge-decisions={self.config.store.absolute()}",
            f"-policybridge-growth-limit={self.config.growth_limit:g}",
        ]
        if self.config.fallback == "error":
            flags.append("-policybridge-fallback=error")
        variables = self._cache_variables(plugin)
        if not set(_ONLY_COMPILES) & set(compiler.arguments):
            # LLVM's options of a command that also links reach a linker that compiles (LTO), which does not know them.
            variables |= {"CCACHE_DISABLE": "1", **{_variable(flag): flag.partition("=")[2] for flag in flags}}
            flags = []
        with ExitStack() as stack:
            folder = _folder(stack)
            if folder:
                variables["POLICYBRIDGE_STATS"] = f"{folder}/%p-%m.json"
            words = compiler.with_plugin(str(plugin), flags, early=loads_early(compiler))
            report = self._started(words, variables)
            told = [msgspec.json.decode(file.read_bytes()) for file in (sorted(folder.iterdir()) if folder else ())]
        return Decided(replace(report, command=[*self.compiler.start, *self.compiler.arguments]), self._summed(told))

    def _seen_by_caches(self) -> CompilerCommand:
        start = self.compiler.start
        if not any(Path(word).name == _UNSEEING for word in start[:-1]):
            return self.compiler
        return replace(self.compiler, start=start[-1:])

    def _cache_variables(self, plugin: Path) -> dict[str, str]:
        environment = self.surroundings.changed({})
        files = [str(plugin), str(self.config.store.absolute())]
        names = ("CCACHE_EXTRAFILES", "BUILDCACHE_HASH_EXTRA_FILES")
        return {name: ":".join([*filter(None, [environment.get(name)]), *files]) for name in names}

    def _summed(self, told: Sequence[Mapping[str, Any]]) -> Applied | None:
        stores = [each["store"] for each in told if each.get("store")]
        stores = [each for each in stores if each["applied"] + each["unmatched"]]
        if not stores:
            return None
        counts = {name: sum(each[name] for each in stores) for name in ("applied", "unmatched")}
        exact = all(each["exact"] for each in stores)
        return Applied(str(self.config.store), stores[0]["module"], exact, **counts)

    def _interactive(self, section: Section) -> Decided:
        if not defaults_of(self.compiler, INLINE).known:
            why = "this LLVM tells its own decisions at -Oz only, and there is no plugin for it (--plugins)"
            return Decided(self._plainly(), None, f"all decisions are the compiler's own: {why}")
        connection = StoreConnection(section.answers)
        config = HostConfig(
            _NAME,
            _NAME,
            fallback=self.config.fallback,
            growth_limit=self.config.growth_limit,
            retry_after=0,
            timeout=3600,
        )
        words = [*self.compiler.start, *self.compiler.arguments]
        report = run_compiler(words, config, self.surroundings, connection=connection, interrupts=self.interrupts)
        applied, of = len(connection.applied), len(section.answers)
        counted = Applied(str(self.config.store), self._path, False, applied, of - applied)
        if applied == of or (not applied and not _ends_with(section.heading.path, self._path)):
            return Decided(report, counted)
        return Decided(
            report, counted, f"{self.config.store.name}: {applied} of {of} decisions applied to {self._path}"
        )


def _folder(stack: ExitStack) -> Path | None:
    # Without a place for temporary files it is not known what applied; the build goes on.
    with suppress(OSError):
        return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="policybridge-")))
    return None


def _ends_with(section: str, path: str) -> bool:
    return f"/{path}".endswith(f"/{section.lstrip('/')}")


def _variable(flag: str) -> str:
    return flag.partition("=")[0].lstrip("-").upper().replace("-", "_")

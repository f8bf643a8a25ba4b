"""A source package as a job of a farm: fetched, built and converted where the job runs; its modules come back."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from policybridge_train.compiling.compiler import same_compiler
from policybridge_train.compiling.limits import Limits
from policybridge_train.compiling.module import Module
from policybridge_train.corpus.bitcode import FrontEnd
from policybridge_train.corpus.debian.apt import ETC, Apt
from policybridge_train.corpus.debian.package import Row, Wanted, Workshop
from policybridge_train.corpus.description import Corpus
from policybridge_train.corpus.wrappers import cache
from policybridge_train.corpus.writing import CorpusWriter
from policybridge_train.farms.contract import Machine


@dataclass(frozen=True)
class Tools:
    """What builds packages on a machine."""

    apt: Apt
    front_end: FrontEnd


@dataclass(frozen=True)
class ToolsRecipe:
    """How apt and clang are found on each machine; see `FrontEnd` for the other attributes.

    Attributes:
        compiler: the name or path of the clang.
        version: the output of its ``--version`` on every machine.
        etc: apt's settings, with the addresses of archives.
        lists: the folder for apt's lists; ``None`` for one in the user's cache.

    """

    compiler: str
    version: str
    level: str | None
    lines: bool
    limits: Limits
    etc: Path = ETC
    lists: Path | None = None
    target: str | None = None

    @classmethod
    def of(cls, front_end: FrontEnd) -> "ToolsRecipe":
        """Ask for the same front end everywhere."""
        compiler = front_end.compiler
        return cls(
            compiler.name,
            compiler.version,
            front_end.level,
            front_end.lines,
            front_end.limits,
            target=front_end.target,
        )

    def make(self, _: Machine) -> Tools:
        """Fetch the lists of packages, and find the clang.

        Raises:
            PolicyBridgeError: there is no clang of this version, no apt, or no archive that can be reached.

        """
        compiler = same_compiler(self.compiler, self.version)
        folder = self.lists or cache() / "apt"
        with _alone(folder):
            apt = Apt.prepare(folder, self.etc)
        return Tools(apt, FrontEnd(compiler, self.level, self.lines, self.limits, self.target))


@dataclass(frozen=True)
class Built:
    """The result of building a package.

    Attributes:
        row: for the report.
        corpus: its modules, programs and failures; the modules' files are in ``bitcode``.
        bitcode: of each module, in their order.
        log: the output of its builds.

    """

    row: Row
    corpus: Corpus
    bitcode: tuple[bytes, ...]
    log: bytes

    def add(self, writer: CorpusWriter, logs: Path) -> None:
        """Add the modules and programs to a corpus, and the log to a folder."""
        names = {}
        for module, bitcode in zip(self.corpus.modules, self.bitcode, strict=True):
            names[module.name] = _add(module, bitcode, writer)
        writer.link(
            replace(program, modules=tuple(dict.fromkeys(names[one] for one in program.modules)))
            for program in self.corpus.programs
        )
        for name, why in self.corpus.failures.items():
            writer.fail(name, why)
        if self.log:
            logs.mkdir(parents=True, exist_ok=True)
            with (logs / f"{self.row.package}.log").open("ab") as file:
                file.write(self.log)


@dataclass(frozen=True)
class PackageJob:
    """Builds one package.

    Attributes:
        seconds: that one build may take.

    """

    wanted: Wanted
    tools: ToolsRecipe
    seconds: float

    def run(self, machine: Machine) -> Built:
        """Build it in a folder that is removed; what fails is told in the row."""
        tools = machine.tool(self.tools)
        with TemporaryDirectory(prefix="policybridge-debian-", ignore_cleanup_errors=True) as name:
            folder = Path(name)
            writer, logs = CorpusWriter(folder / "corpus"), folder / "logs"
            workshop = Workshop(tools.apt, folder / "work", tools.front_end, writer, logs, self.seconds)
            with machine.running.counted(workshop.stop):
                row = workshop.process(self.wanted)
            corpus, log = writer.write(), b""
            with suppress(FileNotFoundError):
                log = (logs / f"{self.wanted.name}.log").read_bytes()
            return Built(row, corpus, tuple(module.bitcode.read_bytes() for module in corpus.modules), log)


def _add(module: Module, bitcode: bytes, writer: CorpusWriter) -> str:
    file = writer.temporary(module.name)
    file.write_bytes(bitcode)
    return writer.add(module, file)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Let one process of the machine at a time have apt's lists."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "used").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield

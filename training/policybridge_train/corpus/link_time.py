"""The programs of a corpus as LTO optimises them."""

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from policybridge_core.errors import InvalidError, NotFoundError, PolicyBridgeError, PreconditionError
from policybridge_core.lacking import lacking
from policybridge_train.compiling.compiler import Compiler, CompileTool
from policybridge_train.compiling.limits import Limits
from policybridge_train.compiling.lto import LinkedModule, Mode, find_lld
from policybridge_train.compiling.module import Module, Program
from policybridge_train.compiling.options import Selection
from policybridge_train.compiling.result import CompileError
from policybridge_train.corpus.description import Corpus
from policybridge_train.farms.contract import Farm
from policybridge_train.processes.process import Running, compile_by
from policybridge_train.processes.threads import for_each

_LEVEL: Final = re.compile(r"-O([0-3])")


@dataclass(frozen=True)
class Preparing:
    """Makes the inputs of links: each module after the compiler's own part of LTO, in a file that is made once.

    Attributes:
        folder: of the files.
        running: where compilers are counted while they run.

    """

    folder: Path
    compiler: Compiler
    mode: Mode
    limits: Limits
    running: Running

    def listed(self, program: Program) -> tuple[str, ...]:
        """Give the options of LLD that show a program's names to others as the build's linker did.

        Raises:
            OSError: the list cannot be written.

        """
        if program.exports is None:
            return ()
        shared = program.kind == "shared"
        names = "".join(f'"{name}";\n' for name in program.exports)
        shown = f"global:\n{names}" if names else ""
        text = (f"{{\n{shown}local: *;\n}};\n" if shared else f"{{\n{names}}};\n").encode(errors="surrogateescape")
        path = self.folder / f"{hashlib.sha256(text).hexdigest()}.list"
        self.folder.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)
        return (f"--version-script={path}" if shared else f"--dynamic-list={path}",)

    def input_of(self, module: Module) -> Path:
        """Give the file of a module.

        Raises:
            CompileError: the compiler makes none.
            OSError: the module cannot be read.

        """
        digest = hashlib.sha256(f"{self.mode} {self.compiler.identity} {module.digest}".encode()).hexdigest()
        # ThinLTO imports functions in the order of the files' names, so these sort as the build's own.
        path = self.folder / f"{module.name}.{digest}.bc"
        if path.exists():
            return path
        path.parent.mkdir(parents=True, exist_ok=True)
        # Another run may be making the same one.
        partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
        flags = ["-emit-llvm-bc", f"-flto={self.mode}", "-flto-unit", *module.backend_arguments]
        words = [*self.compiler.start, "-cc1", *flags, "-o", str(partial), "-x", "ir", str(module.bitcode)]
        done = compile_by(words, self.limits, running=self.running)
        if not done.ok:
            partial.unlink(missing_ok=True)
            raise CompileError(f"{module.name}: before linking: {done.failure}")
        partial.replace(path)
        return path


def _whole(program: Program, modules: Sequence[Module], preparing: Preparing) -> LinkedModule:
    """Give a program as one module.

    Args:
        program: the program.
        modules: all of the program, in its order; at least one.
        preparing: gives their files.

    Raises:
        CompileError: one cannot be prepared.
        OSError: a file cannot be read or written.

    """
    inputs = [preparing.input_of(module) for module in modules]
    name = f"{program.project}/{program.name}"
    first = modules[0]
    languages = {module.language for module in modules}
    return LinkedModule(
        name,
        first.folder,
        first.arguments,
        program.project,
        program.name,
        "c++" if "c++" in languages else first.language,
        inputs[0],
        inputs=tuple(inputs),
        mode=preparing.mode,
        words=(*_words(program, modules), *preparing.listed(program)),
    )


def _parts(program: LinkedModule, modules: Iterable[Module]) -> list[LinkedModule]:
    """Give the modules of a program as ThinLTO optimises them, each by itself; ``modules`` are those of `_whole`."""
    return [
        replace(
            program,
            name=module.name,
            arguments=module.arguments,
            source=module.source,
            language=module.language,
            file=path,
            only=path,
        )
        for module, path in zip(modules, program.inputs, strict=True)
    ]


def _words(program: Program, modules: Sequence[Module]) -> Iterator[str]:
    """Give the options that say what the program is."""
    if program.kind == "shared":
        yield "-shared"
    else:
        yield "--entry=main"
        if any("-pic-level" in module.arguments for module in modules):
            yield "-pie"
    levels = {found[1] for module in modules for word in module.arguments if (found := _LEVEL.fullmatch(word))}
    # clang gives LLD the number alone; -Os and -Oz are attributes of the functions, at its 2.
    yield f"--lto-O{max(levels, default='2')}"


@dataclass(frozen=True)
class AtLinkTime:
    """A program at link time.

    Attributes:
        program: as the corpus has it.
        whole: all of it.
        parts: what LTO optimises each by itself: ThinLTO the modules, full LTO the whole.

    """

    program: Program
    whole: LinkedModule
    parts: Sequence[LinkedModule]


@dataclass(frozen=True)
class LinkTime:
    """The programs of a corpus at link time.

    Attributes:
        programs: those that can be linked.
        failures: why others cannot, by name.

    """

    programs: Sequence[AtLinkTime]
    failures: Mapping[str, str] = field(default_factory=dict)


def check_link_time(tool: CompileTool, farm: Farm, selection: Selection) -> None:
    """Refuse what LTO cannot do, before anything is compiled.

    Raises:
        InvalidError: modules are selected, or other machines are to compile.
        PreconditionError: there is no plugin for the linker.
        NotFoundError: there is no linker.

    """
    if selection.modules is not None:
        raise InvalidError("--lto is about whole programs: give --program PROJECT/NAME instead of --module")
    if farm.host is not None:
        raise InvalidError(
            "--lto links on this machine, where all modules of a program are: leave out --ray and --farm"
        )
    if tool.plugin is None:
        wanted = f"policybridge-inliner-{tool.compiler.major}.so"
        message = f"--lto needs the plugin {wanted}, which LLD loads: give its folder (--plugins)"
        raise PreconditionError(lacking(message))
    find_lld(tool.compiler)


def link_time_of(corpus: Corpus, preparing: Preparing, jobs: int) -> LinkTime:
    """Prepare the programs of a corpus for LTO.

    Raises:
        NotFoundError: the corpus has no program; archives are none.

    """
    programs = [program for program in corpus.programs if program.kind != "archive"]
    if not programs:
        raise NotFoundError(
            f"--lto links programs, and {corpus.folder} has none that is asked for: record a build that links one "
            "(policybridge corpus record)"
        )
    known = {module.name: module for module in corpus.modules}
    used = dict.fromkeys(name for program in programs for name in program.modules if name in known)

    def prepared(name: str) -> str:
        try:
            preparing.input_of(known[name])
        except (PolicyBridgeError, OSError) as error:
            if preparing.running.over:
                raise
            return str(error)
        return ""

    failures = {
        name: why
        for name, why in zip(used, for_each(prepared, list(used), jobs, preparing.running), strict=True)
        if why
    }
    made: list[AtLinkTime] = []
    for program in programs:
        lacking = next((name for name in program.modules if name not in known or name in failures), None)
        if lacking is None:
            made.append(_at_link_time(program, [known[name] for name in dict.fromkeys(program.modules)], preparing))
        else:
            failures[f"{program.project}/{program.name}"] = f"it cannot be linked without its module {lacking}"
    return LinkTime(made, failures)


def _at_link_time(program: Program, modules: Sequence[Module], preparing: Preparing) -> AtLinkTime:
    merged = _whole(program, modules, preparing)
    return AtLinkTime(program, merged, [merged] if merged.is_whole else _parts(merged, modules))

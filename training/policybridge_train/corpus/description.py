"""A corpus on disk: mlgo-utils' ``corpus_description.json``, and a second file for everything that it has no field for.

``DIR/corpus_description.json``     mlgo-utils' own: ``modules``, ``has_thinlto``, ``global_command_override``
                                    (llvm/utils/mlgo-utils, extract_ir_lib.py)
``DIR/policybridge_corpus.json``    the project, source and language of each module, the programs, and what failed
``DIR/<module>.bc``                 bitcode before optimisation
``DIR/<module>.cmd``                the arguments of ``clang -cc1``, each ended by a zero byte
``DIR/profiles/<sha256>``           a profile that modules are optimised with
``DIR/<module>.thinlto.bc``         of a corpus of ThinLTO (``has_thinlto``): the module's imports and exports
"""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from policybridge_core.errors import InvalidError, NotFoundError, PreconditionError
from policybridge_train.compiling.module import Module, Program

DESCRIPTION: Final = "corpus_description.json"
DETAILS: Final = "policybridge_corpus.json"


_LANGUAGES: Final = {".c": "c", ".m": "objective-c", ".mm": "objective-c++", ".rs": "rust", ".swift": "swift"}


@dataclass(frozen=True)
class Corpus:
    """Modules, and the programs that are linked from them.

    Attributes:
        failures: what could not be added, by its name, and why.
        thinlto: whether each module has an index of ThinLTO's beside it; LLVM's tools want that of all or of none.

    """

    folder: Path
    modules: Sequence[Module]
    programs: Sequence[Program] = ()
    failures: Mapping[str, str] = field(default_factory=dict)
    thinlto: bool = False

    @classmethod
    def open(cls, folder: Path) -> "Corpus":
        """Read a corpus, also one that LLVM's tools wrote.

        Raises:
            NotFoundError: the folder holds no corpus.
            InvalidError: its description cannot be read.

        """
        description = _read(folder / DESCRIPTION)
        if description is None:
            making = f"policybridge corpus record --output {folder} -- make"
            raise NotFoundError(f"{folder} holds no corpus: there is no {DESCRIPTION} in it; make one ({making})")
        details = _read(folder / DETAILS) or {}
        try:
            return cls(
                folder,
                [_module(folder, name, description, details) for name in description["modules"]],
                [_program(row) for row in details.get("programs", ())],
                dict(details.get("failures", {})),
                bool(description.get("has_thinlto", False)),
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise InvalidError(f"{folder / DESCRIPTION} or {DETAILS} beside it is malformed: {error!r}") from error

    def write(self) -> None:
        """Write both descriptions; the modules' own files are there already.

        Raises:
            PreconditionError: one cannot be written.

        """
        description = {"has_thinlto": self.thinlto, "modules": [module.name for module in self.modules]}
        details = {
            "modules": {
                module.name: {"project": module.project, "source": module.source, "language": module.language}
                for module in self.modules
            },
            "programs": [asdict(program) for program in self.programs],
            "failures": dict(self.failures),
        }
        for name, content in ((DETAILS, details), (DESCRIPTION, description)):
            _replace(self.folder / name, json.dumps(content, indent=2) + "\n")

    def select(self, names: Iterable[str]) -> "Corpus":
        """Give the corpus with these modules alone, and the programs that have any of them."""
        wanted = set(names)
        modules = [module for module in self.modules if module.name in wanted]
        programs = [program for program in self.programs if wanted.intersection(program.modules)]
        return Corpus(self.folder, modules, programs, self.failures, self.thinlto)


def programs_of(corpus: Corpus) -> Sequence[Program]:
    """Give the corpus' programs; for each project that has none, an archive of all its modules."""
    known = {program.project for program in corpus.programs}
    loose: dict[str, list[str]] = {}
    for module in corpus.modules:
        if module.project not in known:
            loose.setdefault(module.project, []).append(module.name)
    return [*corpus.programs, *(Program(name, name, "archive", tuple(names)) for name, names in loose.items())]


def _module(folder: Path, name: str, description: Mapping[str, Any], details: Mapping[str, Any]) -> Module:
    known = details.get("modules", {}).get(name, {})
    project = known.get("project") or name.partition("/")[0]
    source = known.get("source") or name
    language = known.get("language") or _LANGUAGES.get(Path(source).suffix, "c++")
    return Module(name, folder, _arguments(folder / f"{name}.cmd", description), project, source, language)


def _program(row: Mapping[str, Any]) -> Program:
    exports = row.get("exports")
    lists = {"modules": tuple(row["modules"]), "exports": None if exports is None else tuple(exports)}
    return Program(**{**row, **lists})


def _arguments(file: Path, description: Mapping[str, Any]) -> tuple[str, ...]:
    override = description.get("global_command_override")
    if isinstance(override, list):
        return tuple(override)
    try:
        text = os.fsdecode(file.read_bytes())
    except FileNotFoundError:
        return ()
    return tuple(text.rstrip("\0").split("\0")) if text else ()


def _read(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValueError as error:
        raise InvalidError(f"{file} is no JSON: {error}") from error


def _replace(file: Path, text: str) -> None:
    temporary = file.with_name(f"{file.name}.{os.getpid()}.new")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(file)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise PreconditionError(f"{file} cannot be written: {error.strerror}; what stood there stands") from error

"""Adds modules to a corpus on disk. If it is stopped, each file on disk is whole, and the corpus describes it."""

import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import RLock
from typing import Final
from urllib.parse import quote

from policybridge_core.errors import InvalidError, NotFoundError, PreconditionError
from policybridge_train.compiling.module import Module, Program, profile_name
from policybridge_train.corpus.description import Corpus

# Characters that a path below the corpus keeps; control characters and bytes outside UTF-8 become %XX.
_KEPT: Final = "/ !#$&'()+,;=@[]{}^~`"


class CorpusWriter:
    """Collects modules, programs and failures in a folder that may hold a corpus already.

    Attributes:
        duplicates: for each module that was there already under another name, that name.

    """

    def __init__(self, folder: Path) -> None:
        # Compilers write into it from other folders.
        self._folder = folder.absolute()
        if self._folder.exists() and not self._folder.is_dir():
            raise PreconditionError(f"{folder} is no folder: choose another --output")
        self._folder.mkdir(parents=True, exist_ok=True)
        if not os.access(self._folder, os.W_OK):
            raise PreconditionError(f"{folder} cannot be written: choose another --output")
        old = _existing(self._folder)
        self._modules = {module.name: module for module in old.modules}
        self._programs: dict[tuple[str, str], Program] = {}
        self._failures: dict[str, str] = {}
        self._added: set[str] = set()
        self._succeeded: set[str] = set()
        self._profiles: dict[Path, str] = {}
        self._by_digest = {module.digest: name for name, module in self._modules.items() if module.bitcode.exists()}
        self.duplicates: dict[str, str] = {}
        self._lock = RLock()

    def temporary(self, name: str) -> Path:
        """Give a file for the bitcode of a module, on the same file system."""
        path = self._folder / f"{name}.{os.getpid()}.new.bc"
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def add(self, module: Module, bitcode: Path) -> str:
        """Move a module into the corpus; give the name under which it stands there."""
        digest = replace(module, folder=bitcode.parent, name=bitcode.stem).digest
        with self._lock:
            return self._add(module, bitcode, digest)

    def keep_profile(self, profile: Path) -> str:
        """Copy a profile; give the path of the copy below the corpus, which has its content's digest for a name.

        Raises:
            OSError: it cannot be read, or written.

        """
        with self._lock:
            if profile not in self._profiles:
                content = profile.read_bytes()
                name = profile_name(hashlib.sha256(content).hexdigest())
                copy = self._folder / name
                if not copy.exists():
                    copy.parent.mkdir(exist_ok=True)
                    partial = copy.with_name(f"{copy.name}.{os.getpid()}.new")
                    partial.write_bytes(content)
                    partial.replace(copy)
                self._profiles[profile] = name
            return self._profiles[profile]

    def add_index(self, name: str, index: Path) -> None:
        """Copy the index of ThinLTO's that belongs to a module."""
        shutil.copyfile(index, self._folder / f"{name}.thinlto.bc")

    def _has_indices(self, modules: Mapping[str, Module]) -> bool:
        """Tell whether this is a corpus of ThinLTO.

        Raises:
            InvalidError: a part of the modules is of ThinLTO, and a part is not.

        """
        with_index = [name for name, module in modules.items() if module.index.exists()]
        if with_index and len(with_index) < len(modules):
            raise InvalidError(
                f"{self._folder} has modules of ThinLTO ({with_index[0]}) and others; LLVM's tools take one kind a"
                " corpus, so add them to two folders"
            )
        return bool(with_index)

    def _add(self, module: Module, bitcode: Path, digest: str) -> str:
        known = self._by_digest.get(digest, module.name)
        if known != module.name:
            bitcode.unlink()
            self.duplicates[module.name] = known
            return known
        module = replace(module, folder=self._folder)
        arguments = "".join(f"{word}\0" for word in module.arguments)
        (self._folder / f"{module.name}.cmd").write_bytes(os.fsencode(arguments))
        bitcode.replace(module.bitcode)
        if module.name in self._modules:
            self._by_digest = {key: name for key, name in self._by_digest.items() if name != module.name}
        self._modules[module.name] = module
        self._by_digest[digest] = module.name
        self._added.add(module.name)
        # What failed before, alone or with its whole project, has succeeded now.
        for name in (module.name, module.project):
            self._failures.pop(name, None)
            self._succeeded.add(name)
        return module.name

    def fail(self, name: str, why: str) -> None:
        """Note what could not be added."""
        with self._lock:
            self._failures[name] = why

    def link(self, programs: Iterable[Program]) -> None:
        """Add programs; those of the same project and name are replaced."""
        with self._lock:
            self._programs.update({(program.project, program.name): program for program in programs})

    def write(self) -> Corpus:
        """Write the descriptions; what another process has added meanwhile stays in them."""
        with self._lock, _held(self._folder):
            old = _existing(self._folder)
            modules = {module.name: module for module in old.modules}
            modules |= {name: self._modules[name] for name in self._added}
            programs = {(program.project, program.name): program for program in old.programs} | self._programs
            failures = {name: why for name, why in old.failures.items() if name not in self._succeeded}
            corpus = Corpus(
                self._folder,
                [modules[name] for name in sorted(modules)],
                [programs[key] for key in sorted(programs)],
                failures | self._failures,
                self._has_indices(modules),
            )
            corpus.write()
            return corpus


def module_name(*parts: str) -> str:
    """Make the name of a module: a path below the corpus' folder of printable characters, without ``.`` and ``..``."""
    words = (word for part in parts for word in part.split("/"))
    kept = [word for word in words if word not in ("", ".", "..")]
    if not kept:
        raise InvalidError(f"no name can be made of {parts}")
    return "/".join(quote(os.fsencode(word), safe=_KEPT) for word in kept)


def remove(path: Path) -> None:
    """Remove a folder, also one whose files are write-protected."""
    shutil.rmtree(path, ignore_errors=True)


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Keep other processes from describing a corpus, as long as the block lasts."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _existing(folder: Path) -> Corpus:
    try:
        return Corpus.open(folder)
    except NotFoundError:
        return Corpus(folder, [])

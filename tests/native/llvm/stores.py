"""Stores of decisions for the plugin, and what a compilation with one gives."""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from policybridge_client.decisions import (
    ALL_FUNCTIONS,
    Decision,
    Heading,
    PassChoice,
    Section,
    SiteLog,
    Store,
    function_key,
    read_sites,
    write_store,
)
from tests.native.conftest import Target
from tests.native.llvm.plugins import built_plugin, need


@dataclass(frozen=True)
class Made:
    """The result of a compilation.

    Attributes:
        output: the object or bitcode; empty if there is none.
        sites: the log, if one was asked for and written.

    """

    status: int
    output: bytes
    said: str
    folder: Path

    @property
    def sites(self) -> SiteLog:
        return read_sites(self.folder / "sites")

    @property
    def store(self) -> dict[str, object]:
        """What the statistics file says about the store."""
        read: dict[str, object] = json.loads((self.folder / "stats.json").read_text())["store"]
        return read


@dataclass(frozen=True)
class Tuner:
    """Compiles in a folder, with the plugin of one major and without.

    Attributes:
        path: the plugin.
        folder: where outputs are written.

    """

    major: str
    path: Path
    folder: Path

    @classmethod
    def of(cls, native: Target, major: str, folder: Path) -> "Tuner":
        return cls(major, built_plugin(native, "inliner", major), folder)

    def plain(self, source: Path, *flags: str) -> bytes:
        """Compile with clang alone; ``flags`` are the level and others, -Oz if there are none."""
        return self._clang(source, [], flags).output

    def logged(self, source: Path, *flags: str, **settings: str) -> Made:
        """Compile and log the sites."""
        return self.compile(source, *flags, sites=str(self.folder / "sites"), **settings)

    def compile(self, source: Path, *flags: str, **settings: str) -> Made:
        """Compile with the plugin, in every phase; ``decisions="x"`` is -policybridge-decisions=x."""
        (self.folder / "sites").unlink(missing_ok=True)
        settings = {"stats": str(self.folder / "stats.json"), "phases": "compile,pre-link,link", **settings}
        options = [
            word
            for name, value in settings.items()
            for word in ("-mllvm", f"-policybridge-{name.replace('_', '-')}={value}")
        ]
        # clang 19 reads its command line before it loads a pass plugin.
        return self._clang(source, [f"-fplugin={self.path}", f"-fpass-plugin={self.path}", *options], flags)

    def _clang(self, source: Path, loading: list[str], flags: tuple[str, ...]) -> Made:
        output = self.folder / "made"
        output.unlink(missing_ok=True)
        driver = f"clang-{self.major}" if source.suffix == ".c" else f"clang++-{self.major}"
        words = [need(driver), "-w", *(flags or ["-Oz"]), *loading, "-c", source, "-o", output]
        done = subprocess.run(words, cwd=self.folder, capture_output=True, env=_environment(), check=False)
        said = done.stderr.decode("utf-8", "replace")
        return Made(done.returncode, output.read_bytes() if output.exists() else b"", said, self.folder)

    def write(self, decisions: Mapping[str, bool], path: str, name: str = "tuned.db", **heading: object) -> str:
        """Write a store with these decisions by key for the module ``path``; give its own path."""
        given = {"llvm": int(self.major), "level": "Oz", "by": "site", "digest": None, "path": path, **heading}
        section = Section(Heading(**given), tuple(Decision(key, inline) for key, inline in decisions.items()))  # type: ignore[arg-type]
        write_store(Store([section]), self.folder / name)
        return str(self.folder / name)

    def choose(self, path: str, choices: Sequence[tuple[str, str, str]], **heading: object) -> str:
        """Write a store with choices of passes, each ``(function, action, name)``; "" is all functions."""
        given = {"llvm": int(self.major), "level": "Oz", "by": "site", "digest": None, "path": path, **heading}
        made = [
            PassChoice(function_key(function) if function else ALL_FUNCTIONS, action, name, function)  # type: ignore[arg-type]
            for function, action, name in choices
        ]
        write_store(Store([Section(Heading(**given), (), made)]), self.folder / "chosen.db")  # type: ignore[arg-type]
        return str(self.folder / "chosen.db")


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("POLICYBRIDGE_")}


def flipped(log: SiteLog, callee: str) -> dict[str, bool]:
    """Give the opposite of LLVM's decisions about all calls whose callee's name contains ``callee``."""
    rows = zip(log.keys, log.callee, log.default, strict=True)
    return {key: not default for key, name, default in rows if callee in name}

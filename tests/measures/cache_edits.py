"""Stores behind compiler caches: ``python -m tests.measures.cache_edits --cache ccache --edits 200``.

A project's sources, header and stores are edited at random. After each edit every module is compiled without a cache,
and then twice behind the cache: with the launcher, which names the store to the cache, and with the plugin alone, where
the user names it. An object that differs from the one without a cache is stale. The second compile must be a hit, and
the first one too where the module's files were once the same. The status is 1 if an object was stale or a hit missing.

It needs the launcher and the plugin of `make natives`.
"""

import argparse
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Final

from policybridge_client.decisions import SiteLog, read_sites
from tests.measures.compiler_caches import CACHES, Cache, opened_cache
from tests.measures.edited_project import NAME, SOURCES, EditedProject

COMPILER: Final = "clang-22"
PLUGIN: Final = "policybridge-inliner-22.so"


@dataclass(frozen=True)
class Builder:
    """Compiles the modules of a project behind a cache and without one.

    Attributes:
        plugins: the folder of the plugin.

    """

    root: Path
    launcher: Path
    plugins: Path
    cache: Cache

    @property
    def plugin(self) -> Path:
        return self.plugins / PLUGIN

    @property
    def ways(self) -> Mapping[str, Callable[[str], bytes]]:
        """How a module is compiled behind the cache."""
        return {"launcher": self._by_launcher, "plugin": self._by_plugin}

    def plain(self, source: str) -> bytes:
        """Compile behind the launcher alone."""
        return self._run([self.launcher, "--", COMPILER], source)

    def logged(self, source: Path) -> SiteLog:
        """Compile without a store; give the calls about which LLVM asks."""
        log = self.root / "sites"
        options = ("-mllvm", f"-policybridge-sites={log}")
        self._run([COMPILER, f"-fpass-plugin={self.plugin}", *options], str(source.relative_to(self.root)))
        return read_sites(log)

    def _by_launcher(self, source: str) -> bytes:
        return self._run([self.launcher, "--", self.cache.program, COMPILER], source)

    def _by_plugin(self, source: str) -> bytes:
        stores = [folder / NAME for folder in (self._place(source), self.root) if (folder / NAME).exists()]
        named = ":".join(map(str, (self.plugin, *stores[:1])))
        label = ("-mllvm", f"-policybridge-label=source={Path(source).with_suffix('')}")
        words = [self.cache.program, COMPILER, f"-fpass-plugin={self.plugin}", *label]
        return self._run(words, source, **{self.cache.extra_files: named})

    def _place(self, source: str) -> Path:
        return (self.root / source).parent

    def _run(self, start: Sequence[str | Path], source: str, **variables: str) -> bytes:
        """Compile as make does in the source's own folder, and src/b.c as CMake does, by its whole path."""
        output = self._place(source) / "made.o"
        output.unlink(missing_ok=True)
        named = self.root / source if source.endswith("b.c") else Path(source).name
        flags = ("-w", "-Oz", f"-I{self.root}/include", "-MD", "-MF", "made.d")
        environment = {**self.cache.environment, "POLICYBRIDGE_PLUGINS": str(self.plugins), **variables}
        words = [*start, *flags, "-c", named, "-o", "made.o"]
        done = subprocess.run(words, cwd=output.parent, env=environment, capture_output=True, text=True, check=False)
        if done.returncode or "is not applied" in done.stderr:
            raise RuntimeError(f"{' '.join(map(str, words))}: status {done.returncode}: {done.stderr}")
        return output.read_bytes()


@dataclass
class Tried:
    """The outcome of the edits: numbers of compiles behind the cache, by their way.

    Attributes:
        again: second compiles without an edit between.
        again_hits: of them those from the cache.
        back: first compiles of files that were once the same.
        back_hits: of them those from the cache.

    """

    compiles: Counter[str] = field(default_factory=Counter)
    stale: Counter[str] = field(default_factory=Counter)
    again: Counter[str] = field(default_factory=Counter)
    again_hits: Counter[str] = field(default_factory=Counter)
    back: Counter[str] = field(default_factory=Counter)
    back_hits: Counter[str] = field(default_factory=Counter)

    @property
    def is_right(self) -> bool:
        return not self.stale.total() and (self.again, self.back) == (self.again_hits, self.back_hits)

    def lines(self) -> Iterator[str]:
        """Give a line for each way."""
        for way, compiles in self.compiles.items():
            again = f"{self.again_hits[way]} of {self.again[way]} hits where nothing changed"
            back = f"{self.back_hits[way]} of {self.back[way]} where all is as it once was"
            yield f"{way}: {compiles} compiles, {self.stale[way]} stale, {again}, {back}"


def tried(builder: Builder, project: EditedProject, edits: int) -> Tried:
    """Edit the project, and compile it after each edit; tell each fault as it is found."""
    result, seen = Tried(), set[tuple[object, ...]]()
    for number in range(edits):
        edit = project.edit()
        for source in SOURCES:
            expected = builder.plain(source)
            for way, compiled in builder.ways.items():
                state = (way, source, project.state_of(source))
                for fault in _faults(builder.cache, partial(compiled, source), expected, result, way, state in seen):
                    print(f"edit {number}, {edit}: {source} by {way}: {fault}", flush=True)
                seen.add(state)
    return result


def _faults(  # noqa: PLR0917
    cache: Cache, compiled: Callable[[], bytes], expected: bytes, result: Tried, way: str, is_known: bool
) -> Iterator[str]:
    """Compile twice, count, and give the faults. The first is a hit too if the files ``is_known``."""
    for is_again in (False, True):
        before = cache.hits
        made = compiled()
        is_hit = cache.hits == before + 1
        result.compiles[way] += 1
        if made != expected:
            result.stale[way] += 1
            yield "stale"
        if is_again or is_known:
            counts, hits = (result.again, result.again_hits) if is_again else (result.back, result.back_hits)
            counts[way] += 1
            hits[way] += is_hit
            if not is_hit:
                yield "no hit where nothing changed" if is_again else "no hit where all is as it once was"


def main(words: Sequence[str] | None = None) -> int:
    """Edit and compile; the exit status is 1 if an object was stale, or a hit missing."""
    parser = argparse.ArgumentParser(prog="python -m tests.measures.cache_edits", description=__doc__)
    parser.add_argument("--cache", required=True, metavar="PROGRAM", help=f"one of {', '.join(CACHES)}, or its path")
    parser.add_argument("--edits", type=int, default=200, metavar="N")
    parser.add_argument("--seed", type=int, default=1, metavar="N")
    parser.add_argument("--native", type=Path, default=Path(".cache/native"), metavar="DIR", help="the build folder")
    asked = parser.parse_args(words)
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("POLICYBRIDGE_", "CCACHE_"))}
    native = asked.native.absolute()
    with TemporaryDirectory() as folder, opened_cache(asked.cache, Path(folder) / "cache", ours) as cache:
        root = Path(folder) / "a project"
        builder = Builder(root, native / "bin" / "policybridge-run", native / "lib", cache)
        result = tried(builder, EditedProject(root, Random(asked.seed), builder.logged), asked.edits)
    print(f"{cache.name}, {asked.edits} edits, seed {asked.seed}")
    print("\n".join(result.lines()))
    return int(not result.is_right)


if __name__ == "__main__":
    sys.exit(main())

"""Where a policy should decide under LTO: ``python -m tests.measures.link_time --work DIR --program libre2.so``.

Each program is built at -Oz with -flto=full and -flto=thin, linked by LLD 22 with ``--gc-sections --icf=all``, and
stripped: with LLVM's own decisions, and with a policy's before linking, at link time and in both. The policies are the
bundled ones, whose scope is bypassed by a label.

It needs Debian's packages clang-22, lld-22, llvm-22-dev and dpkg-dev, and the build dependencies of the packages.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from policybridge_train.corpus.debian.apt import Apt
from tests.conftest import running_server
from tests.native.conftest import built

MODES: Final = ("full", "thin")
POLICIES: Final = ("inliner", "size")
_WAYS: Final = {"pre-link": (True, False), "link": (False, True), "both": (True, True)}
_JOBS: Final = 2


class Program(msgspec.Struct, frozen=True):
    """A program or library of a Debian source package.

    Attributes:
        sources: patterns below the package's folder; one that begins with ``!`` takes away.
        flags: of the compiler.
        libraries: of the linker.

    """

    package: str
    sources: list[str]
    flags: str = ""
    libraries: str = ""


_WOFF2: Final = ["src/table_tags.cc", "src/variable_length.cc", "src/woff2_common.cc"]
_MACHINE: Final = ["!src/call_machine.cpp", "!src/json.cpp", "!src/gr_logging.cpp"]

PROGRAMS: Final = {
    "libwoff2enc.so": Program(
        "woff2",
        [*_WOFF2, *(f"src/{name}.cc" for name in ("font", "glyph", "normalize", "transform", "woff2_enc"))],
        "-Iinclude -fPIC",
        "-shared -lbrotlienc",
    ),
    "libwoff2dec.so": Program(
        "woff2", [*_WOFF2, "src/woff2_dec.cc", "src/woff2_out.cc"], "-Iinclude -fPIC", "-shared -lbrotlidec"
    ),
    "libgraphite2.so": Program(
        "graphite2",
        ["src/*.cpp", *_MACHINE],
        "-Iinclude -Isrc -fPIC -fno-rtti -fno-exceptions -fvisibility=hidden -DGRAPHITE2_EXPORTING"
        " -DGRAPHITE2_NTRACING",
        "-shared",
    ),
    "libre2.so": Program(
        "re2", ["re2/*.cc", "util/rune.cc", "util/strutil.cc"], "-I. -std=c++17 -fPIC", "-shared -lpthread"
    ),
    "xmltest": Program("tinyxml2", ["tinyxml2.cpp", "xmltest.cpp"], "-I."),
    "flatc": Program(
        "flatbuffers",
        ["src/*.cpp", "!src/flathash.cpp", "grpc/src/compiler/*_generator.cc"],
        "-Iinclude -Isrc -Igrpc -std=c++17",
    ),
}


class Size(msgspec.Struct, frozen=True):
    """Bytes of a stripped program: of the file, and of its text with constants and tables as ``size`` counts them."""

    file: int
    text: int


@dataclass(frozen=True)
class Bench:
    """Builds one program.

    Attributes:
        work: holds the packages and the builds.
        plugin: the library for clang and LLD.
        server: the address of a server with the bundled policies.

    """

    name: str
    program: Program
    work: Path
    plugin: Path
    server: str

    def measure(self, mode: str) -> dict[str, Size]:
        """Give the size of each build by its name: ``none``, or the policy and the phases."""
        sizes = {"none": self._size(mode, None, None)}
        for policy in POLICIES:
            for way, (before, at_link) in _WAYS.items():
                sizes[f"{policy} {way}"] = self._size(mode, policy if before else None, policy if at_link else None)
        return sizes

    @property
    def _source(self) -> Path:
        return self.work / self.program.package / "source"

    def _size(self, mode: str, before: str | None, at_link: str | None) -> Size:
        objects = self._objects(mode, before)
        output = objects / f"{self.name}-{at_link or 'none'}"
        if not output.exists():
            loading = [f"-Wl,--load-pass-plugin={self.plugin}"] if at_link else []
            words = ["clang++-22", "--ld-path=ld.lld-22", f"-flto={mode}", "-Oz", *loading]
            words += ["-Wl,--gc-sections,--icf=all,-s,--thinlto-jobs=1", *sorted(map(str, objects.glob("*.o")))]
            self._run([*words, "-o", str(output), *self.program.libraries.split()], at_link)
        told = subprocess.run(["llvm-size-22", output], capture_output=True, text=True, check=True).stdout
        return Size(output.stat().st_size, int(told.splitlines()[1].split()[0]))

    def _objects(self, mode: str, policy: str | None) -> Path:
        folder = self.work / "built" / self.name / f"{mode}-{policy or 'none'}"
        if not (folder / "done").exists():
            folder.mkdir(parents=True, exist_ok=True)
            with ThreadPoolExecutor(_JOBS) as pool:
                list(pool.map(lambda source: self._compile(source, mode, policy, folder), self._sources()))
            (folder / "done").touch()
        return folder

    def _sources(self) -> list[Path]:
        given = self.program.sources
        without = {self._source / pattern[1:] for pattern in given if pattern.startswith("!")}
        found = {path for pattern in given if not pattern.startswith("!") for path in self._source.glob(pattern)}
        return sorted(found - without)

    def _compile(self, source: Path, mode: str, policy: str | None, folder: Path) -> None:
        loading = [f"-fpass-plugin={self.plugin}"] if policy else []
        flags = ["-w", "-Oz", f"-flto={mode}", "-DNDEBUG", "-ffunction-sections", "-fdata-sections"]
        output = folder / f"{'-'.join(source.relative_to(self._source).parts)}.o"
        words = ["clang++-22", *flags, *self.program.flags.split(), *loading, "-c", str(source), "-o", str(output)]
        self._run(words, policy)

    def _run(self, words: Sequence[str], policy: str | None) -> None:
        settings = {
            "POLICYBRIDGE_SERVER": self.server,
            "POLICYBRIDGE_POLICY": policy or "",
            "POLICYBRIDGE_LABELS": "phase=compile",
            "POLICYBRIDGE_PHASES": "compile,pre-link,link",
            "POLICYBRIDGE_FALLBACK": "error",
        }
        subprocess.run(words, cwd=self._source, env={**os.environ, **settings}, check=True)


def main(words: Sequence[str] | None = None) -> int:
    """Measure, and print JSON: program, mode of LTO, build, and its bytes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--program", action="append", choices=PROGRAMS, help="default: all")
    options = parser.parse_args(words)
    work: Path = options.work.absolute()
    work.mkdir(parents=True, exist_ok=True)
    plugin = built("policybridge-inliner-22") / "lib" / "policybridge-inliner-22.so"
    made: dict[str, dict[str, dict[str, Size]]] = {}
    with running_server(None, work) as server:
        for name in options.program or PROGRAMS:
            program = PROGRAMS[name]
            _fetch(program.package, work)
            bench = Bench(name, program, work, plugin, server.socket)
            made[name] = {mode: bench.measure(mode) for mode in MODES}
            _show(name, made[name])
    print(json.dumps(msgspec.to_builtins(made), indent=1))
    return 0


def _fetch(package: str, work: Path) -> None:
    folder = work / package
    if not (folder / "source").is_dir():
        folder.mkdir(exist_ok=True)
        archive = Apt.prepare(work / "apt").download(package, folder)
        subprocess.run(["dpkg-source", "-x", archive.name, "source"], cwd=folder, check=True)


def _show(name: str, modes: dict[str, dict[str, Size]]) -> None:
    for mode, sizes in modes.items():
        plain = sizes["none"].text
        changes = (f"{way} {100 * (size.text / plain - 1):+.2f} %" for way, size in sizes.items() if way != "none")
        print(f"{name} {mode}: {plain} bytes; {', '.join(changes)}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())

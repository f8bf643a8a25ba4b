"""Where a policy should decide under LTO: ``python -m tests.measures.link_time --work DIR --program libre2.so``.

Each program is built at -Oz with -flto=full and -flto=thin, linked by LLD 22 with ``--gc-sections --icf=all``, and
stripped: with LLVM's own decisions, and with a policy's before linking, at link time and in both. The policies are the
bundled ones, whose scope is bypassed by a label. With ``--tuned`` it is instead built with a store that
``policybridge autotune --lto --budget 64`` made from the recorded build.

It needs Debian's packages clang-22, lld-22, llvm-22-dev and dpkg-dev, and the build dependencies of the packages.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
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
_BUDGET: Final = 64
_COMPILED: Final = ("-w", "-Oz", "-DNDEBUG", "-ffunction-sections", "-fdata-sections")


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

    def tune(self, mode: str) -> dict[str, Size]:
        """Give the size by LLVM's own decisions, and by those of a store that was tuned for the program."""
        return {"none": self._size(mode, None, None), "tuned": self._tuned(mode)}

    def _tuned(self, mode: str) -> Size:
        folder = self.work / "tuned" / self.name
        folder.mkdir(parents=True, exist_ok=True)
        store, build = folder / f"{mode}.db", folder / "build.sh"
        build.write_text("\n".join(["set -e", *(shlex.join(words) for words in self._build(folder))]) + "\n")
        tuning = [sys.executable, "-m", "policybridge_client.cli", "autotune", "--store", str(store), "--lto", mode]
        tuning += ["--from", "size"]
        tuning += [
            "--budget",
            str(_BUDGET),
            "--compiler",
            "clang-22",
            "--plugins",
            str(self.plugin.parent),
            "--jobs",
            "1",
        ]
        self._run([*tuning, "--", "bash", str(build)], None)
        output = folder / mode / self.name
        output.parent.mkdir(exist_ok=True)
        self._link(mode, self._objects(mode, None), output, {"POLICYBRIDGE_DECISIONS": str(store)})
        return _measured(output)

    def _build(self, folder: Path) -> Iterator[list[str]]:
        """Give the commands of a build without LTO."""
        objects = []
        for source in self._sources():
            objects.append(str(folder / self._object(source)))
            flags = [*_COMPILED, *self.program.flags.split()]
            yield ["clang++-22", *flags, "-c", str(source.relative_to(self._source)), "-o", objects[-1]]
        yield ["clang++-22", *objects, "-o", str(folder / self.name), *self.program.libraries.split()]

    @property
    def _source(self) -> Path:
        return self.work / self.program.package / "source"

    def _size(self, mode: str, before: str | None, at_link: str | None) -> Size:
        objects = self._objects(mode, before)
        output = objects / f"{self.name}-{at_link or 'none'}"
        if not output.exists():
            self._link(mode, objects, output, self._asking(at_link) if at_link else None)
        return _measured(output)

    def _link(self, mode: str, objects: Path, output: Path, deciding: Mapping[str, str] | None) -> None:
        loading = [f"-Wl,--load-pass-plugin={self.plugin}"] if deciding else []
        words = ["clang++-22", "--ld-path=ld.lld-22", f"-flto={mode}", "-Oz", *loading]
        words += ["-Wl,--gc-sections,--icf=all,-s,--thinlto-jobs=1", *sorted(map(str, objects.glob("*.o")))]
        self._run([*words, "-o", str(output), *self.program.libraries.split()], deciding)

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
        flags = [*_COMPILED, f"-flto={mode}", *self.program.flags.split()]
        output = folder / self._object(source)
        words = ["clang++-22", *flags, *loading, "-c", str(source), "-o", str(output)]
        self._run(words, self._asking(policy) if policy else None)

    def _object(self, source: Path) -> str:
        return f"{'-'.join(source.relative_to(self._source).parts)}.o"

    def _asking(self, policy: str) -> dict[str, str]:
        return {
            "POLICYBRIDGE_SERVER": self.server,
            "POLICYBRIDGE_POLICY": policy,
            "POLICYBRIDGE_LABELS": "phase=compile",
            "POLICYBRIDGE_PHASES": "compile,pre-link,link",
            "POLICYBRIDGE_FALLBACK": "error",
        }

    def _run(self, words: Sequence[str], settings: Mapping[str, str] | None) -> None:
        subprocess.run(words, cwd=self._source, env={**os.environ, **(settings or {})}, check=True, stdout=sys.stderr)


def _measured(output: Path) -> Size:
    told = subprocess.run(["llvm-size-22", output], capture_output=True, text=True, check=True).stdout
    return Size(output.stat().st_size, int(told.splitlines()[1].split()[0]))


def main(words: Sequence[str] | None = None) -> int:
    """Measure, and print JSON: program, mode of LTO, build, and its bytes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--program", action="append", choices=PROGRAMS, help="default: all")
    parser.add_argument("--tuned", action="store_true", help="build with a tuned store instead of the policies")
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
            made[name] = {mode: bench.tune(mode) if options.tuned else bench.measure(mode) for mode in MODES}
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

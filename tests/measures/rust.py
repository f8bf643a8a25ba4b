"""Rust programs by the policy ``size`` at link time: ``python -m tests.measures.rust --work DIR --program exa``.

Debian's sources of programs are built by cargo with opt-level z, one codegen unit, ``-C linker-plugin-lto`` and
``--icf=all``, and stripped. LTO ``thin`` is LLD's, with one job, and leaves the standard library as it is; with ``fat``
rustc merges the program with the standard library before, as ``lto = true`` does. The linker, a script, links each
program twice: plainly, and through the launcher by the policy. A third program is that of rustc's own fat LTO, without
``-C linker-plugin-lto``. All must print the same.

It needs Debian's packages rustc-web, cargo-web, clang-22, lld-22, llvm-22-dev and dpkg-dev, and of the packages' build
dependencies those named ``librust-…-dev``, without librust-git2.
"""

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from policybridge_train.corpus.debian.apt import Apt
from tests.conftest import running_server
from tests.native.conftest import built

MODES: Final = {"thin": "off", "fat": "fat"}
"""Of each kind of LTO the profile's setting."""
OWN: Final = "rustc"
"""rustc's own fat LTO."""
_TARGET: Final = "x86_64-unknown-linux-gnu"
_FLAGS: Final = "-Clink-arg=-Wl,--icf=all"
_DEFERRING: Final = "-Clinker-plugin-lto -Clink-arg=-Wl,--thinlto-jobs=1"
_SOURCES: Final = """[source.crates-io]
replace-with = "debian"
[source.debian]
directory = "/usr/share/cargo/registry"
"""
_LEFT_OUT: Final = ("[dev-dependencies", "[features]", "[profile", "[dependencies.git2]")
"""Sections that ask for crates that Debian has not, or for other options than ours."""
_LINKER: Final = """#!/bin/sh
for word in "$@"; do [ "$last" = -o ] && output=$word; last=$word; done
clang-22 --ld-path=ld.lld-22 "$@" || exit
case "$*" in *-plugin-opt=*) ;; *) exit 0 ;; esac
exec {launcher} --policy size --server {server} --fallback error -- clang-22 --ld-path=ld.lld-22 "$@" -o "$output.size"
"""


@dataclass(frozen=True)
class Program:
    """A program of a Debian source package.

    Attributes:
        package: its name.
        tried: arguments of a run, whose output is compared, in the folder of its sources.

    """

    package: str
    tried: Sequence[str]


PROGRAMS: Final = {
    "exa": Program("rust-exa", ("--tree", "--long", "--no-time", "src")),
    "fd": Program("rust-fd-find", ("--threads=1", "--exclude=target", "[a-d].*rs$")),
    "rg": Program("rust-ripgrep", ("--threads=1", "--line-number", "--stats", "fn (main|new)", "crates/core/args.rs")),
}


class Size(msgspec.Struct, frozen=True):
    """Bytes of a stripped program: of the file, and of its text with constants and tables as ``size`` counts them."""

    file: int
    text: int


def measure(name: str, work: Path, server: str) -> dict[str, dict[str, Size]]:
    """Give, by the kind of LTO, the sizes by rustc's own LTO, by LLD's, and by the decisions of the policy."""
    program = PROGRAMS[name]
    source = _source(program.package, work)
    linker = work / "linker"
    linker.write_text(_LINKER.format(launcher=built("policybridge-run") / "bin" / "policybridge-run", server=server))
    linker.chmod(0o755)
    own = _build(name, source, linker, OWN)
    built_by = {OWN: own} | {mode: _build(name, source, linker, mode) for mode in MODES}
    decided = {mode: built_by[mode].with_name(f"{built_by[mode].name}.size") for mode in MODES}
    if len({_printed(path, program, source) for path in (*built_by.values(), *decided.values())}) > 1:
        raise SystemExit(f"the programs {name} print different things")
    return {
        mode: {OWN: _measured(own), "none": _measured(built_by[mode]), "size": _measured(decided[mode])}
        for mode in MODES
    }


def _source(package: str, work: Path) -> Path:
    folder = work / package
    if not (folder / "source").is_dir():
        folder.mkdir(exist_ok=True)
        archive = Apt.prepare(work / "apt").download(package, folder)
        subprocess.run(["dpkg-source", "-x", archive.name, "source"], cwd=folder, check=True, stdout=sys.stderr)
    source = folder / "source"
    (source / "Cargo.lock").unlink(missing_ok=True)
    manifest = source / "Cargo.toml"
    sections = re.split(r"(?m)^(?=\[)", manifest.read_text())
    manifest.write_text("".join(part for part in sections if not part.startswith(_LEFT_OUT)))
    (source / ".cargo").mkdir(exist_ok=True)
    (source / ".cargo" / "config.toml").write_text(_SOURCES)
    return source


def _build(name: str, source: Path, linker: Path, mode: str) -> Path:
    """Build the program, unless it is built; give the one that is linked plainly."""
    folder = source.with_name(f"built-{mode}")
    environment = {
        **os.environ,
        "POLICYBRIDGE_PLUGINS": str(built("policybridge-inliner-22") / "lib"),
        "CARGO_HOME": str(linker.with_name("cargo")),
        "CARGO_TARGET_DIR": str(folder),
        "CARGO_PROFILE_RELEASE_LTO": MODES.get(mode, "fat"),
        "CARGO_PROFILE_RELEASE_CODEGEN_UNITS": "1",
        "CARGO_PROFILE_RELEASE_OPT_LEVEL": "z",
        "CARGO_PROFILE_RELEASE_STRIP": "symbols",
        "RUSTFLAGS": f"{_FLAGS} {'' if mode == OWN else _DEFERRING} -Clinker={linker}",
    }
    words = ["cargo", "build", "--release", "--offline", "--bin", name, "--target", _TARGET]
    made = folder / _TARGET / "release" / "deps"
    if not made.is_dir():
        subprocess.run(words, cwd=source, env=environment, check=True, stdout=sys.stderr)
    (description,) = made.glob(f"{name}-*.d")
    return description.with_suffix("")


def _printed(path: Path, program: Program, source: Path) -> bytes:
    done = subprocess.run([path, *program.tried], cwd=source, capture_output=True, check=True)
    # ripgrep's statistics end with times.
    return b"".join(line for line in done.stdout.splitlines(keepends=True) if b" seconds" not in line)


def _measured(path: Path) -> Size:
    told = subprocess.run(["llvm-size-22", path], capture_output=True, text=True, check=True).stdout
    return Size(path.stat().st_size, int(told.splitlines()[1].split()[0]))


def main(words: Sequence[str] | None = None) -> int:
    """Measure, and print JSON: program, kind of LTO, decisions, and the program's bytes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--program", action="append", choices=PROGRAMS, help="default: all")
    options = parser.parse_args(words)
    work: Path = options.work.absolute()
    work.mkdir(parents=True, exist_ok=True)
    made = {}
    with running_server(None, work) as server:
        for name in options.program or PROGRAMS:
            made[name] = measure(name, work, server.socket.removeprefix("socket:"))
            for mode, sizes in made[name].items():
                print(name, mode, {way: size.text for way, size in sizes.items()}, file=sys.stderr, flush=True)
    print(json.dumps(msgspec.to_builtins(made), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())

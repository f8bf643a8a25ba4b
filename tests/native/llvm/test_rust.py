"""The plugin in LLD with modules of rustc: a policy and a store decide about functions of Rust at link time."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType

import pytest

from policybridge_client.decisions import Decision, Heading, Section, Store, read_sites, write_store
from policybridge_server.ledger.query import Query
from policybridge_server.ledger.reader import LedgerReader
from tests.conftest import RunningServer, running_server
from tests.native.conftest import Target, missing
from tests.native.llvm.plugins import built_plugin, need
from tests.repositories import answering, write_python

MAJOR = 22

SOURCE = """
#[inline(never)]
#[no_mangle]
fn sink(x: u64) -> u64 { std::hint::black_box(x) }

#[no_mangle]
fn step(x: u64) -> u64 {
    let mut sum = x;
    for i in 0..9 { sum = sum.wrapping_mul(31).wrapping_add(sink(sum ^ i) * sink(i)); }
    sum
}

#[inline(never)]
#[no_mangle]
fn walk(x: u64) -> u64 { step(x) ^ step(sink(x)) ^ step(x / 3) }

fn main() {
    let mut lengths: Vec<u64> = std::env::args().skip(1).map(|word| walk(word.len() as u64)).collect();
    lengths.sort();
    println!("{lengths:?} {}", walk(3));
}
"""
WORDS = ("some", "words")

EACH_LTO = pytest.mark.parametrize("lto", ["off", "fat"])


def as_feature(name: str) -> int:
    return int.from_bytes(sha256(name.encode()).digest()[:8], "big", signed=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("server")


@pytest.fixture(scope="module")
def server(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    repository = tmp_path_factory.mktemp("policies")
    inlines = f'observation["callee"].item() == {as_feature("step")} or observation["inlining_default"].item()'
    write_python(repository, "stepping", answering(f"int({inlines})"))
    with running_server(repository, folder, "--ledger", str(folder / "ledger.db")) as running:
        yield running


@dataclass(frozen=True)
class Crate:
    """A program of Rust, of one crate, and the words that build it.

    Attributes:
        lto: of rustc: ``off`` leaves all to LLD, and ``fat`` merges the standard library into the module.

    """

    launcher: str
    plugin: Path
    folder: Path
    lto: str

    def by_plugin(self, name: str, **settings: str) -> str:
        """Build with the plugin in LLD; give the messages."""
        return self.build(name, f"-Clink-arg=-Wl,--load-pass-plugin={self.plugin}", settings=settings)

    def by_launcher(self, name: str, *launching: str, deferring: bool = True) -> str:
        """Build with the launcher as the linker's; give the messages."""
        linker = self.folder / "linker"
        linker.write_text(f'#!/bin/sh\nexec {self.launcher} {" ".join(launching)} -- clang-{MAJOR} "$@"\n')
        linker.chmod(0o755)
        settings = {"plugins": str(self.plugin.parent)}
        return self.build(name, f"-Clinker={linker}", deferring=deferring, settings=settings)

    def build(
        self, name: str, *words: str, deferring: bool = True, settings: Mapping[str, str] = MappingProxyType({})
    ) -> str:
        """Build; ``deferring`` leaves optimisation to the linker. Give the messages."""
        (self.folder / "words.rs").write_text(SOURCE)
        lto = ["-Clinker-plugin-lto", f"-Clto={self.lto}"] if deferring else []
        linking = [f"-Clinker={need(f'clang-{MAJOR}')}", f"-Clink-arg=--ld-path={need(f'ld.lld-{MAJOR}')}"]
        options = ["--edition=2021", "-Copt-level=z", "-Ccodegen-units=1", *lto, *linking, *words, "-o", name]
        plain = {
            word: value
            for word, value in os.environ.items()
            if not word.startswith(("POLICYBRIDGE_", "MAKE", "MFLAGS", "CARGO_MAKE"))
        }
        given = {f"POLICYBRIDGE_{word.upper()}": value for word, value in settings.items()}
        done = subprocess.run(
            ["rustc", "words.rs", *options],
            cwd=self.folder,
            env={**plain, **given},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stderr

    def printed(self, name: str) -> str:
        done = subprocess.run([self.folder / name, *WORDS], capture_output=True, text=True, check=True)
        return done.stdout

    def program(self, name: str) -> bytes:
        return (self.folder / name).read_bytes()


@pytest.fixture
def lto() -> str:
    return "off"


@pytest.fixture
def crate(lto: str, native: Target, launcher: str, tmp_path: Path) -> Crate:
    told = subprocess.run([need("rustc"), "-vV"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"LLVM version: (\d+)", told)
    if found is None or int(found[1]) > MAJOR:
        missing(f"a rustc whose modules LLD {MAJOR} reads")
    return Crate(launcher, built_plugin(native, "inliner", str(MAJOR)), tmp_path, lto)


def asking(server: RunningServer) -> dict[str, str]:
    return {"server": server.socket, "policy": "stepping", "fallback": "error"}


@EACH_LTO
def test_functions_of_rust_are_decided_by_the_policy_and_the_program_prints_the_same(
    crate: Crate, server: RunningServer, folder: Path
) -> None:
    crate.build("plain")
    assert crate.by_plugin("decided", **asking(server)) == ""
    assert crate.program("decided") != crate.program("plain")
    assert crate.printed("decided") == crate.printed("plain")
    with LedgerReader(folder / "ledger.db") as reader:
        session = list(reader.sessions(Query(policy="stepping")))[-1]
        (batch,) = reader.trajectory(session).batches
    assert session.outcome is not None
    assert (session.outcome.status, session.labels["language"]) == ("ok", "rust")
    (context,) = {*batch.contexts}
    assert ("decided" in context) if crate.lto == "fat" else context.startswith("words.")
    asked = {*zip(*(batch.observations[which].ravel().tolist() for which in ("caller", "callee")), strict=True)}
    assert (as_feature("walk"), as_feature("step")) in asked


def test_the_launcher_as_rustcs_linker_decides_where_modules_are_linked(crate: Crate, server: RunningServer) -> None:
    assert crate.by_launcher("decided", "--policy", "stepping", "--server", server.socket) == ""
    crate.build("plain")
    assert crate.program("decided") != crate.program("plain")
    assert crate.printed("decided") == crate.printed("plain")


def test_a_link_of_objects_by_rustc_is_left_as_it_is(crate: Crate, server: RunningServer) -> None:
    assert crate.by_launcher("decided", "--policy", "stepping", "--server", server.socket, deferring=False) == ""
    crate.build("plain", deferring=False)
    assert crate.program("decided") == crate.program("plain")


@EACH_LTO
def test_a_store_decides_about_functions_of_rust_by_the_modules_name(crate: Crate) -> None:
    crate.by_plugin("plain", sites="%m.sites")
    (log,) = (log for path in crate.folder.glob("*.sites") if "step" in (log := read_sites(path)).callee)
    rows = zip(log.keys, log.callee, log.default, strict=True)
    decisions = [Decision(key, not default) for key, callee, default in rows if callee == "step"]
    # Of a merged module the name is the program's.
    name = log.path.replace("plain", "tuned")
    write_store(
        Store([Section(Heading(MAJOR, log.level, "site", None, name, "link"), decisions)]), crate.folder / "tuned.db"
    )
    launching = ("--decisions", "tuned.db", "--stats", "%m.json")
    assert crate.by_launcher("tuned", *launching) == ""
    told = [json.loads(path.read_text())["store"] for path in crate.folder.glob("*.json")]
    assert sum(store["applied"] for store in told if store) == len(decisions)
    assert crate.program("tuned") != crate.program("plain")
    assert crate.printed("tuned") == crate.printed("plain")


@pytest.mark.parametrize("command", ["autotune", "corpus record --output corpus"])
def test_a_build_by_rustc_has_nothing_to_record_or_search_and_the_message_names_what_can_decide(
    crate: Crate, command: str
) -> None:
    crate.build("plain")
    linker = f"-Clinker={need(f'clang-{MAJOR}')}"
    words = [sys.executable, "-m", "policybridge_client.cli", *command.split(), "--", "rustc", "words.rs", linker]
    done = subprocess.run(words, cwd=crate.folder, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "rustc makes modules that are not recorded or searched" in done.stderr
    assert "-C linker-plugin-lto" in done.stderr

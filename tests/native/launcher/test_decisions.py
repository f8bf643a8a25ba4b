"""The launcher with a store of decisions in the place of a policy and a server."""

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from policybridge_client.decisions import Decision, Heading, Section, Store, write_store
from policybridge_client.llvm.asked import asked
from tests.client.compilers import write_source
from tests.native.conftest import MAJORS, Target
from tests.native.llvm.plugins import need
from tests.native.llvm.stores import Tuner, flipped


@pytest.fixture(autouse=True)
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("POLICYBRIDGE_PLUGINS", raising=False)


@dataclass(frozen=True)
class Build:
    """A source, the store that was tuned for it, and the launcher."""

    tuner: Tuner
    launcher: str
    source: Path
    store: str
    count: int

    def run(self, *words: str, plugins: str | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
        """Start clang with these words behind the launcher."""
        where = str(self.tuner.path.parent) if plugins is None else plugins
        launching = [self.launcher, "--decisions", self.store, "--plugins", where, "--"]
        command = [*launching, need(f"clang-{self.tuner.major}"), *words]
        environment = {**os.environ, **variables}
        return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)

    def tuned(self) -> bytes:
        """Give the object that the plugin makes when it is given by hand."""
        return self.tuner.compile(self.source, decisions=self.store).output


@pytest.fixture(params=MAJORS)
def build(request: pytest.FixtureRequest, native: Target, launcher: str, tmp_path: Path) -> Build:
    folder = tmp_path / "a folder"
    folder.mkdir()
    tuner = Tuner.of(native, request.param, folder)
    source = write_source(folder)
    decisions = flipped(tuner.logged(source).sites, "middle")
    return Build(tuner, launcher, source, tuner.write(decisions, "module.c"), len(decisions))


def test_with_the_plugin_the_store_applies_and_nothing_is_said(build: Build) -> None:
    done = build.run("-w", "-Oz", "-c", str(build.source), "-o", "made.o")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    made = Path("made.o").read_bytes()
    assert made == build.tuned()
    assert made != build.tuner.plain(build.source)


def test_the_statistics_tell_how_much_applied(build: Build) -> None:
    words = ["--plugins", str(build.tuner.path.parent), "--stats", "stats.json"]
    clang = [need(f"clang-{build.tuner.major}"), "-Oz", "-c", str(build.source), "-o", "made.o"]
    subprocess.run([build.launcher, "--decisions", build.store, *words, "--", *clang], check=True)
    stats = json.loads(Path("stats.json").read_text())["store"]
    assert (stats["path"], stats["applied"], stats["unmatched"]) == (build.store, build.count, 0)


def test_commands_that_link_preprocess_or_fail_are_as_without_a_store(build: Build) -> None:
    main = Path("main.c")
    main.write_text("int sink(int x) { return x; }\nint module0(int);\nint main(void) { return module0(0) == 7; }\n")
    source = str(build.source)
    for words in (
        ["-Werror", "-E", source, "-o", "made.i"],
        ["-Werror", "-Oz", "-c", source, "-o", "module.o"],
        ["-Werror", "-Oz", "-save-temps=obj", "-c", source, "-o", "saved.o"],
        ["-Werror", "-Oz", "module.o", "main.c", "-o", "program"],
        ["-Werror", "module.o", "main.c", "-o", "program"],
        ["--version"],
    ):
        done = build.run(*words)
        assert (done.returncode, done.stderr) == (0, "")
    assert Path("module.o").read_bytes() == build.tuned()
    wrong = build.run("-Oz", "-c", "missing.c")
    assert wrong.returncode == 1
    assert "missing.c" in wrong.stderr


def test_the_plugin_is_found_by_a_variable(build: Build) -> None:
    folders = f"/nowhere:{build.tuner.path.parent}"
    done = build.run("-w", "-Oz", "-c", str(build.source), "-o", "made.o", plugins="", POLICYBRIDGE_PLUGINS=folders)
    assert (done.returncode, done.stderr) == (0, "")
    assert Path("made.o").read_bytes() == build.tuned()


def test_a_broken_store_leaves_the_plain_object_or_compiles_nothing(build: Build) -> None:
    Path(build.store).write_bytes(b"\x7fELF")
    done = build.run("-w", "-Oz", "-c", str(build.source), "-o", "made.o")
    assert done.returncode == 0
    assert done.stderr.startswith(f"policybridge-run: all decisions are the compiler's own: {build.store}, line 1: ")
    assert Path("made.o").read_bytes() == build.tuner.plain(build.source)
    strict = [build.launcher, "--decisions", build.store, "--fallback", "error", "--"]
    clang = [f"clang-{build.tuner.major}", "-Oz", "-c", str(build.source), "-o", "strict.o"]
    done = subprocess.run([*strict, *clang], capture_output=True, text=True, check=False)
    assert done.returncode == 70
    assert "no decisions, and nothing compiled: " in done.stderr
    assert not Path("strict.o").exists()


def test_behind_ccache_the_stores_content_is_in_the_key(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    need("ccache")
    monkeypatch.setenv("CCACHE_DIR", str(build.tuner.folder / "cache"))
    compiling = ["-w", "-Oz", "-c", str(build.source), "-o", "made.o"]
    launching = [build.launcher, "--decisions", build.store, "--plugins", str(build.tuner.path.parent), "--"]
    command = [*launching, "ccache", need(f"clang-{build.tuner.major}"), *compiling]
    tuned = build.tuned()
    for decisions in (None, None, {"0" * 16: True}):
        if decisions:
            build.tuner.write(decisions, "elsewhere.c")
        subprocess.run(command, check=True)
        assert (Path("made.o").read_bytes() == tuned) is not bool(decisions)
    statistics = subprocess.run(["ccache", "--print-stats"], capture_output=True, text=True, check=True).stdout
    counts = dict(line.split("\t") for line in statistics.splitlines())
    assert int(counts["direct_cache_hit"]) + int(counts["preprocessed_cache_hit"]) == 1


def write_sequence(folder: Path, decisions: Mapping[str, bool]) -> str:
    """Write a store by sequence for module.c in ``folder``."""
    heading = Heading(22, "Oz", "sequence", None, "module.c")
    section = Section(heading, tuple(Decision(key, inline) for key, inline in decisions.items()))
    write_store(Store([section]), folder / "sequence.db")
    return str(folder / "sequence.db")


def test_without_a_plugin_the_launcher_answers_by_the_sequence_of_questions(launcher: str, tmp_path: Path) -> None:
    source = write_source(tmp_path)
    clang = [need("clang-22"), "-Oz", "-c", str(source), "-o"]
    first = asked([*clang, "first.o"], {}).log
    decisions = {key: not own for key, own in zip(first.keys, first.default.tolist(), strict=True)}
    assert asked([*clang, "asked.o"], decisions).status == 0
    store = write_sequence(tmp_path, decisions)
    launching = [launcher, "--decisions", store, "--plugins", "/nowhere", "--stats", "stats.json", "--"]
    subprocess.run([*launching, *clang, "made.o"], check=True, capture_output=True)
    assert Path("made.o").read_bytes() == Path("asked.o").read_bytes() != Path("first.o").read_bytes()
    counted = json.loads(Path("stats.json").read_text())["store"]
    assert (counted["applied"] > 4, counted["applied"] + counted["unmatched"]) == (True, len(decisions))


def test_decisions_by_site_without_a_plugin_are_told_once_and_llvm_decides(build: Build, tmp_path: Path) -> None:
    # Beside the launcher of the build folder there are plugins.
    alone = replace(build, launcher=shutil.copy(build.launcher, str(tmp_path)))
    done = alone.run("-w", "-Oz", "-c", str(build.source), "-o", "made.o", plugins=str(tmp_path))
    assert done.returncode == 0
    assert done.stderr.count("\n") == 1
    assert "module.c by site, and there is no plugin that this compiler loads (--plugins)" in done.stderr
    assert Path("made.o").read_bytes() == build.tuner.plain(build.source)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--decisions", "x", "--server", "y"], "with --decisions no server is asked"),
        (["--decisions", "x", "--policy", "y"], "argument --policy: not allowed with argument --decisions"),
        (["--decisions", "x", "--task", "evict"], "decisions of the task 'inline' alone, not of 'evict'"),
        (["--policy", "x", "--server", "socket:y", "--plugins", "z"], "--plugins is for --decisions"),
        (["--decisions", "z", "--no-decisions"], "--no-decisions: not allowed with argument --decisions"),
    ],
)
def test_options_that_do_not_go_together_are_refused(launcher: str, words: list[str], said: str) -> None:
    done = subprocess.run([launcher, *words, "--", "clang-22"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert said in done.stderr

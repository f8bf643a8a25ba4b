"""Finding a project's own store, and ``policybridge run`` with it in the interactive mode."""

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from policybridge_client.decisions import Decision, Heading, Section, Store, find_store, write_store
from policybridge_client.decisions.finding import NAME
from policybridge_client.llvm.asked import asked
from tests.client.compilers import ZIG, write_source
from tests.conftest import command


def make(path: Path) -> Path:
    """Make a repository's root, an empty store at it, and folders below; give the lowest."""
    (path / ".git").mkdir(parents=True)
    write_store(Store(), path / NAME)
    (path / "a/b").mkdir(parents=True)
    return path / "a/b"


def test_the_nearest_store_up_to_the_root_of_the_repository_is_found(tmp_path: Path) -> None:
    folder = make(tmp_path / "project")
    found = find_store(folder / "x.c")
    assert found is not None
    assert (found.path, found.refused) == (tmp_path / "project" / NAME, "")
    write_store(Store(), folder / NAME)
    nearest = find_store(folder / "x.c")
    assert nearest is not None
    assert nearest.path == folder / NAME


@pytest.mark.parametrize("marker", [".git", ".hg", ".jj", ".svn"])
def test_no_store_beyond_the_repository_is_found(tmp_path: Path, marker: str) -> None:
    write_store(Store(), tmp_path / NAME)
    (tmp_path / "project" / marker).mkdir(parents=True)
    assert find_store(tmp_path / "project/x.c") is None


def test_without_a_repository_a_store_counts_eight_folders_above_the_source(tmp_path: Path) -> None:
    write_store(Store(), tmp_path / NAME)
    deep = tmp_path / "a/b/c/d/e/f/g/h"
    (deep / "i").mkdir(parents=True)
    assert find_store(deep / "x.c") is not None
    assert find_store(deep / "i/x.c") is None
    assert find_store(tmp_path / "gone/x.c") is None


def test_a_store_that_another_user_could_have_written_is_refused(tmp_path: Path) -> None:
    folder = make(tmp_path / "project")
    (tmp_path / "project").chmod(0o777)
    found = find_store(folder / "x.c")
    assert found is not None
    assert found.refused == "its folder can be written by other users; name it by --decisions to use it"
    (tmp_path / "project").chmod(0o755)
    (tmp_path / "project" / NAME).chmod(0o666)
    found = find_store(folder / "x.c")
    assert found is not None
    assert found.refused.startswith("it can be written by other users")


def run(folder: Path, *words: str) -> str:
    """Compile without the launcher; give what was said."""
    environment = {**os.environ, "POLICYBRIDGE_LAUNCHER": ""}
    compiling = ["-w", "-c", "module.c", "-o", "made.o"]
    done = subprocess.run(
        command("run", *words, *compiling), cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_the_interactive_mode_applies_the_found_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make(tmp_path / "project")
    store = tmp_path / "project" / NAME
    write_source(folder)
    monkeypatch.chdir(folder)
    log = asked([*ZIG, "-Oz", "-w", "-c", "module.c", "-o", "asked.o"], {}).log
    heading = Heading(22, log.level, "sequence", None, "a/b/module.c")
    section = Section(heading, [Decision(log.keys[0], not log.default[0])])
    write_store(Store([section]), store)
    run(folder, "--stats", "stats.json", "--", *ZIG, "-Oz")
    told = json.loads((folder / "stats.json").read_text())["store"]
    assert (told["path"], told["applied"]) == (str(store), 1)
    run(folder, "--no-decisions", "--stats", "stats.json", "--", *ZIG, "-Oz")
    assert json.loads((folder / "stats.json").read_text())["store"] is None
    assert f"decisions of {store}\n" in run(folder, "--", *ZIG, "-Oz", "-v")
    write_store(Store([replace(section, heading=replace(heading, level="O2"))]), store)
    said = f"{NAME} has decisions about a/b/module.c at -O2, and none at -{log.level}\n"
    assert run(folder, "--", *ZIG, "-Oz").endswith(said)


def test_a_compiler_that_never_asks_runs_as_it_is(tmp_path: Path) -> None:
    folder = make(tmp_path / "project")
    (folder / "module.c").write_text("int x;\n")
    assert run(folder, "--", "gcc") == ""
    assert (folder / "made.o").exists()

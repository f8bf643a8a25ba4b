"""A project's own store of decisions, which launcher and plugin find by themselves."""

import json
import os
import shutil
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from policybridge_client.decisions import Decision, Heading, Section, SiteLog, Store, write_store
from tests.client.compilers import write_source
from tests.conftest import command
from tests.native.conftest import Target
from tests.native.llvm.plugins import need
from tests.native.llvm.stores import Tuner, flipped

MAJOR = "22"
NAME = "policybridge.decisions"
COMPILE = ("-w", "-Oz", "-c", "module.c", "-o", "made.o")


@dataclass(frozen=True)
class Project:
    """A repository with a source in a folder, in which it is compiled.

    Attributes:
        start: the words before the compiler's: the launcher, in one of its kinds.
        source: the source's folder.

    """

    tuner: Tuner
    start: tuple[str, ...]
    root: Path
    source: Path
    log: SiteLog

    def store(self, decisions: dict[str, bool] | None = None, *, folder: Path | None = None, **heading: object) -> Path:
        """Write a store at the root: by default one that turns some decisions."""
        given = {"llvm": int(MAJOR), "level": "Oz", "by": "site", "digest": None, "path": "src/module.c", **heading}
        chosen = flipped(self.log, "middle") if decisions is None else decisions
        section = Section(Heading(**given), tuple(Decision(key, inline) for key, inline in chosen.items()))  # type: ignore[arg-type]
        path = (folder or self.root) / NAME
        write_store(Store([section]), path)
        return path

    def compile(self, *options: str, words: tuple[str, ...] = COMPILE, before: str = "", **variables: str) -> str:
        """Compile behind the launcher; give what was said."""
        clang = [*before.split(), need(f"clang-{MAJOR}")]
        return self._run([*self.start, *options, "--", *clang, *words], variables)

    def build(self, *words: str, options: tuple[str, ...] = ()) -> str:
        """Run a build behind the launcher; give its output."""
        return self._run([*self.start, *options, "--", *words], {})

    def compile_by_plugin(self, *options: str, before: str = "", **variables: str) -> str:
        """Compile with the plugin alone."""
        settings = [word for option in options for word in ("-mllvm", f"-policybridge-{option}")]
        words = [*before.split(), need(f"clang-{MAJOR}"), f"-fpass-plugin={self.tuner.path}", *settings, *COMPILE]
        return self._run(words, variables)

    def _run(self, words: list[str], variables: dict[str, str]) -> str:
        self.output.unlink(missing_ok=True)
        environment = {**os.environ, "POLICYBRIDGE_PLUGINS": str(self.tuner.path.parent), **variables}
        done = subprocess.run(words, cwd=self.source, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stderr

    @property
    def output(self) -> Path:
        return self.source / "made.o"

    @property
    def plain(self) -> bytes:
        return self.tuner.plain(Path("module.c"))

    @property
    def is_plain(self) -> bool:
        return self.output.read_bytes() == self.plain


@pytest.fixture
def project(native: Target, launcher: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    for name in ("POLICYBRIDGE_SERVER", "POLICYBRIDGE_NO_DECISIONS"):
        monkeypatch.delenv(name, raising=False)
    root = tmp_path / "a project"
    source = root / "src"
    source.mkdir(parents=True)
    (root / ".git").mkdir()
    write_source(source)
    tuner = Tuner.of(native, MAJOR, source)
    return Project(tuner, (launcher,), root, source, tuner.logged(Path("module.c")).sites)


@pytest.fixture(params=["launcher", "run"])
def either(request: pytest.FixtureRequest, project: Project, launcher: str, monkeypatch: pytest.MonkeyPatch) -> Project:
    """Give the project behind ``policybridge-run``, and behind ``policybridge run``, which starts that."""
    monkeypatch.setenv("POLICYBRIDGE_LAUNCHER", launcher)
    return project if request.param == "launcher" else replace(project, start=tuple(command("run")))


def test_a_build_behind_the_launcher_is_told_that_its_compilers_get_no_decisions(either: Project) -> None:
    (either.source / "Makefile").write_text("made.o: module.c\n\t$(CC) -Oz -c $< -o $@\n")
    either.store()
    build = ("env", "A=1", need("make"), "CC=clang-22")
    said = either.build(*build)
    assert "a build starts its compilers itself, and gets no decisions from here: let it start each so" in said
    assert (either.build(*build, options=("--no-decisions",)), either.is_plain) == ("", True)


def test_a_store_at_the_root_of_the_project_is_found_without_a_flag(either: Project) -> None:
    assert (either.compile(), either.is_plain) == ("", True)
    store = either.store()
    assert (either.compile("--stats", "stats.json"), either.is_plain) == ("", False)
    told = json.loads((either.source / "stats.json").read_text())["store"]
    assert (told["path"], told["applied"], told["unmatched"]) == (str(store), len(flipped(either.log, "middle")), 0)
    said = either.compile(words=("-v", *COMPILE))
    assert f"decisions of {store}\n" in said


def test_the_plugin_finds_the_store_by_itself(project: Project) -> None:
    assert (project.compile_by_plugin(), project.is_plain) == ("", True)
    project.store()
    assert (project.compile_by_plugin(), project.is_plain) == ("", False)
    assert (project.compile_by_plugin("no-decisions"), project.is_plain) == ("", True)
    assert (project.compile_by_plugin(POLICYBRIDGE_NO_DECISIONS="1"), project.is_plain) == ("", True)


def test_the_search_is_switched_off_by_an_option_and_by_a_variable(either: Project) -> None:
    either.store()
    assert (either.compile("--no-decisions"), either.is_plain) == ("", True)
    assert (either.compile(POLICYBRIDGE_NO_DECISIONS="1"), either.is_plain) == ("", True)


def test_the_nearest_store_counts_and_none_beyond_the_repository(project: Project) -> None:
    project.store(folder=project.root.parent)
    assert (project.compile(), project.is_plain) == ("", True)
    (project.root / ".git").rmdir()
    assert (project.compile(), project.is_plain) == ("", False)
    project.store({}, folder=project.source)
    assert (project.compile(), project.is_plain) == ("", True)


def test_without_a_repository_the_search_ends_eight_folders_above_the_source(project: Project) -> None:
    (project.root / ".git").rmdir()
    project.store()
    for depth, is_found in ((7, True), (8, False)):
        folder = project.source.joinpath(*"abcdefgh"[:depth])
        folder.mkdir(parents=True)
        shutil.copy(project.source / "module.c", folder)
        deep = replace(project, source=folder)
        assert deep.compile() == ""
        assert deep.is_plain is not is_found
        deep.compile_by_plugin()
        assert deep.is_plain is not is_found


@pytest.mark.parametrize("which", ["file", "folder"])
def test_what_another_user_could_have_written_is_told_and_not_taken(project: Project, which: str) -> None:
    store = project.store()
    open_to_all = store if which == "file" else project.root
    open_to_all.chmod(0o777)
    for said in (project.compile(), project.compile_by_plugin()):
        assert f"{store} is not applied: it" in said
        assert "can be written by other users; name it by --decisions to use it" in said
        assert said.count("\n") == 1
        assert project.is_plain
    project.compile("--decisions", str(store))
    assert not project.is_plain


def test_what_is_given_wins_over_the_found_store(project: Project) -> None:
    project.store()
    empty = project.root / "empty.db"
    write_store(Store(), empty)
    assert (project.compile("--decisions", str(empty)), project.is_plain) == ("", True)
    assert (project.compile_by_plugin(f"decisions={empty}"), project.is_plain) == ("", True)
    said = project.compile("--policy", "nobody", "--server", "socket:none")
    assert "all decisions are the compiler's own: " in said
    assert project.is_plain


def test_a_store_for_another_level_says_so_in_one_line(project: Project) -> None:
    project.store(level="O2")
    expected = f"{NAME} has decisions about module.c at -O2, and none at -Oz\n"
    assert project.compile() == project.compile_by_plugin() == f"policybridge: {expected}"


def test_a_store_for_link_time_says_so_in_one_line(project: Project) -> None:
    project.store(phase="link")
    assert project.compile().endswith("at link time, and none at compile time\n")


def test_decisions_of_another_compiler_that_do_not_apply_name_it(project: Project) -> None:
    project.store({"0" * 16: True}, llvm=19)
    said = f"policybridge: {NAME}: 0 of 1 decisions applied to module.c; they were tuned with LLVM 19\n"
    assert project.compile() == said


def test_a_compiler_that_never_asks_runs_as_it_is(either: Project) -> None:
    either.store()
    words = [*either.start, "--", need("gcc"), "-w", "-c", "module.c", "-o", "made.o"]
    done = subprocess.run(words, cwd=either.source, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert either.output.exists()


def test_options_for_a_policy_need_one(project: Project) -> None:
    words = [*project.start, "--server", "socket:x", "--", "clang", "-c", "module.c"]
    done = subprocess.run(words, cwd=project.source, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "policybridge-run: --server needs --policy NAME\n")


def test_behind_a_cache_each_store_has_its_own_objects(project: Project, cache: str) -> None:
    made: dict[str, bytes] = {}
    stats = project.source / "stats.json"
    for name in ("none", "middle", "none", "empty", "middle"):
        if name == "none":
            (project.root / NAME).unlink(missing_ok=True)
        else:
            project.store({} if name == "empty" else None)
        stats.unlink(missing_ok=True)
        assert project.compile("--stats", str(stats), before=cache) == ""
        if name == "middle":
            assert stats.exists() is (name not in made)  # the second time from the cache
        assert project.output.read_bytes() == made.setdefault(name, project.output.read_bytes())
    assert made["none"] == made["empty"] == project.plain != made["middle"]


def test_behind_a_cache_equal_sources_of_two_folders_have_their_own_decisions(project: Project, cache: str) -> None:
    other = replace(project, source=project.root / "other")
    shutil.copytree(project.source, other.source)
    turned = tuple(Decision(key, inline) for key, inline in flipped(project.log, "middle").items())
    headings = [Heading(int(MAJOR), "Oz", "site", None, f"{name}/module.c") for name in ("other", "src")]
    write_store(Store([Section(headings[0]), Section(headings[1], turned)]), project.root / NAME)
    for folder, is_plain in ((project, False), (other, True), (project, False)):
        assert folder.compile(before=cache) == ""
        assert folder.is_plain is is_plain


def test_a_command_whose_settings_are_variables_is_not_cached(project: Project, cache: str) -> None:
    (project.source / "words").write_text("-Oz")
    words = ("-w", "@words", "-c", "module.c", "-o", "made.o")
    for decisions, is_plain in ((None, False), ({}, True)):
        project.store(decisions)
        assert project.compile(words=words, before=cache) == ""
        assert project.is_plain is is_plain


def test_a_cache_that_would_not_see_the_store_gets_the_plain_object(project: Project, cache: str) -> None:
    store = project.store()
    name = f"{Path(cache).name.upper()}_EXTRAFILES"
    said = project.compile_by_plugin(before=cache)
    assert (f"name {store} in {name}" in said, project.is_plain) == (True, True)
    project.compile_by_plugin(before=cache, **{name: f"{project.tuner.path}:{store}"})
    assert not project.is_plain

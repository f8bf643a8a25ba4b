"""The launcher with LTO: the plugin is added for LLD, and decides at link time."""

import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from policybridge_client.decisions import Decision, Heading, Section, Store, read_sites, write_store
from policybridge_client.decisions.passes import ALL_FUNCTIONS, PassChoice
from tests.conftest import RunningServer, command, running_server
from tests.native.conftest import Target
from tests.native.llvm.plugins import built_plugin, need
from tests.repositories import answering, write_python

SOURCE = """
int sink(int x) { return x; }
static int step(int x) { int s = x; for (int i = 0; i < 9; ++i) s += sink(s ^ i) * x; return s; }
int main(void) { return step(sink(1)) + step(sink(2)); }
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    repository = tmp_path_factory.mktemp("policies")
    write_python(repository, "always", answering("1"))
    write_python(repository, "linking", answering("1"), '[scope]\nphase = ["link"]')
    with running_server(repository, tmp_path_factory.mktemp("server")) as running:
        yield running


@dataclass(frozen=True)
class Build:
    """A program in a folder, by clang and a linker."""

    launcher: str
    plugin: Path
    folder: Path
    mode: str
    compiler: str = "clang-22"

    def compile(self, *launching: str) -> str:
        return self._run(launching, "-c", "a.c", "-o", "a.o")

    def link(self, *launching: str, flags: tuple[str, ...] = (), linker: str = "ld.lld-22", **more: str) -> str:
        """Link; give the messages."""
        return self._run(launching, f"--ld-path={need(linker)}", *flags, "a.o", "-o", "program", **more)

    def object(self, name: str = "program") -> bytes:
        return (self.folder / name).read_bytes()

    def store(self, phase: str = "link") -> tuple[str, ...]:
        """Give the launcher's words for a store with the opposite of LLVM's decisions about ``step``."""
        self.link(flags=(f"-Wl,--load-pass-plugin={self.plugin}",), POLICYBRIDGE_SITES="sites")
        log = read_sites(self.folder / "sites")
        rows = zip(log.keys, log.callee, log.default, strict=True)
        decisions = [Decision(key, not default) for key, callee, default in rows if callee == "step"]
        name = "program" if self.mode == "full" else "a.c"
        heading = Heading(22, "Oz", "site", None, name, phase)  # type: ignore[arg-type]
        write_store(Store([Section(heading, decisions)]), self.folder / "tuned.db")
        return ("--decisions", "tuned.db")

    def _run(self, launching: tuple[str, ...], *words: str, **more: str) -> str:
        return self.run(launching, need(self.compiler), "-Oz", f"-flto={self.mode}", *words, **more)

    def run(self, launching: tuple[str, ...], *words: str, **more: str) -> str:
        """Run a compiler by its own words; give the messages."""
        command = [self.launcher, *launching, "--", *words] if launching else words
        settings = {"POLICYBRIDGE_PLUGINS": str(self.plugin.parent), **more}
        done = subprocess.run(
            command, cwd=self.folder, env={**os.environ, **settings}, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stderr


@pytest.fixture(params=["full", "thin"])
def build(request: pytest.FixtureRequest, native: Target, launcher: str, tmp_path: Path) -> Build:
    made = Build(launcher, built_plugin(native, "inliner", "22"), tmp_path, request.param)
    (tmp_path / "a.c").write_text(SOURCE)
    made.compile()
    return made


def test_a_store_decides_at_link_time_and_leaves_the_objects_before_it_as_they_are(build: Build) -> None:
    objects = build.object("a.o")
    build.link()
    plain = build.object()
    store = build.store()
    assert build.compile(*store) == ""
    assert build.object("a.o") == objects
    assert build.link(*store) == ""
    assert build.object() != plain


def test_a_policy_decides_at_link_time(build: Build, server: RunningServer) -> None:
    build.link()
    plain = build.object()
    assert build.link("--policy", "always", "--server", server.socket) == ""
    assert build.object() != plain


@pytest.fixture
def policy(server: RunningServer) -> tuple[str, ...]:
    """Give the launcher's words for a policy."""
    return ("--policy", "always", "--server", server.socket)


def test_a_link_whose_words_are_in_response_files_is_decided(build: Build, policy: tuple[str, ...]) -> None:
    build.link(*policy)
    decided = build.object()
    (build.folder / "the inputs").write_text('"a.o"\t-o pro"gram"\n')
    linker = need("ld.lld-22").replace("d", "\\d")
    (build.folder / "words").write_text(f"-flto={build.mode} '@the inputs'\n--ld-path={linker}")
    (build.folder / "program").unlink()
    assert build.run(policy, need("clang-22"), "@words") == ""
    assert build.object() == decided


@pytest.mark.parametrize("words", ["-flto @<(echo late.c)", "-include <(echo enum { late }\\;) late.c"])
def test_what_a_pipe_has_is_left_to_the_compiler(thin: Build, policy: tuple[str, ...], words: str) -> None:
    late = "" if "include" in words else "enum { late };\n"
    (thin.folder / "late.c").write_text(f"{late}int main(void) {{ return late; }}\n")
    start = shlex.join([thin.launcher, *policy, "--", need("clang-22"), f"--ld-path={need('ld.lld-22')}"])
    thin.run((), need("bash"), "-c", f"{start} -o program {words}")
    assert subprocess.run([thin.folder / "program"], check=False).returncode == 0


def test_bitcode_that_is_linked_without_a_flag_is_decided(build: Build, policy: tuple[str, ...]) -> None:
    words = (need("clang-22"), f"--ld-path={need('ld.lld-22')}", "a.o", "-o", "program")
    build.run((), *words)
    plain = build.object()
    assert build.run(policy, *words) == ""
    assert build.object() != plain


def test_a_link_to_an_object_is_decided_because_lld_optimises_there(build: Build, policy: tuple[str, ...]) -> None:
    words = (need("clang-22"), f"-flto={build.mode}", f"--ld-path={need('ld.lld-22')}", "-r", "-nostdlib", "a.o")
    build.run((), *words, "-o", "program")
    plain = build.object()
    assert build.run(policy, *words, "-o", "program") == ""
    assert build.object() != plain


def test_the_folder_of_the_linker_may_be_the_next_word(build: Build, policy: tuple[str, ...]) -> None:
    (build.folder / "the linkers").mkdir()
    (build.folder / "the linkers/ld").symlink_to(str(shutil.which(need("ld.lld-22"))))
    build.link()
    plain = build.object()
    words = (need("clang-22"), f"-flto={build.mode}", "-B", "the linkers", "a.o", "-o", "program")
    assert build.run(policy, *words) == ""
    assert build.object() != plain


def test_a_compiler_cache_may_start_the_compiler_that_links(build: Build, policy: tuple[str, ...], cache: str) -> None:
    words = (need("clang-22"), f"-flto={build.mode}", f"--ld-path={need('ld.lld-22')}", "a.o", "-o", "program")
    for launching in (build.store(), policy):
        build.run(launching, *words)
        decided = build.object()
        assert build.run(launching, cache, *words) == ""
        assert build.object() == decided


def test_a_server_that_is_not_there_is_told_once_a_link(thin: Build) -> None:
    (thin.folder / "b.c").write_text(SOURCE.replace("main", "other").replace("sink", "sank"))
    thin.run((), need("clang-22"), "-Oz", "-flto=thin", "-c", "b.c")
    said = thin.link("--policy", "always", "--server", "socket:nowhere.sock", flags=("b.o", "-Wl,--undefined=other"))
    assert said.count("\n") == said.count("all decisions are the compiler's own: could not reach the server") == 1


def test_a_linker_that_loads_no_plugins_links_as_without_the_launcher_and_one_line_says_so(build: Build) -> None:
    store = build.store()
    native = ["clang-22", "-Oz", "-c", "a.c", "-o", "a.o"]
    subprocess.run(native, cwd=build.folder, check=True)
    build.link(linker="ld.bfd")
    plain = build.object()
    said = build.link(*store, linker="ld.bfd")
    assert said.count("\n") == 1
    assert (
        "all decisions at link time are the compiler's own: the linker loads no plugins of LLVM 22; LLD 22 does" in said
    )
    assert build.object() == plain


def test_the_message_about_an_lld_of_another_llvm_names_the_one_that_loads_the_plugin(
    native: Target, launcher: str, tmp_path: Path, server: RunningServer
) -> None:
    build = Build(launcher, built_plugin(native, "inliner", "19"), tmp_path, "thin", "clang-19")
    (tmp_path / "a.c").write_text(SOURCE)
    build.compile()
    build.link()
    plain = build.object()
    said = build.link("--policy", "always", "--server", server.socket)
    assert said.count("\n") == 1
    assert "the linker loads no plugins of LLVM 19; LLD 19 does (--ld-path=ld.lld-19)" in said
    assert build.object() == plain


@pytest.mark.parametrize("flags", [("a.o",), ("-fno-lto", "b.o"), ("-c", "a.c")])
def test_without_the_launcher_a_link_is_llvms_and_one_line_says_so(
    build: Build, monkeypatch: pytest.MonkeyPatch, policy: tuple[str, ...], flags: tuple[str, ...]
) -> None:
    monkeypatch.setenv("POLICYBRIDGE_LAUNCHER", "")
    build.run((), need("clang-22"), "-c", "a.c", "-o", "b.o")
    words = (need("clang-22"), "-w", f"-flto={build.mode}", f"--ld-path={need('ld.lld-22')}", *flags, "-o", "made")
    build.run((), *words)
    plain = build.object("made")
    said = build.run((), *command("run", *policy, "--", *words))
    told = "all decisions at link time are the compiler's own: policybridge-run alone gives the linker a plugin"
    assert said.count("\n") == said.count(told) == (flags == ("a.o",))
    assert build.object("made") == plain


class TestThatTheLinkerIsTriedOnce:
    """By a compiler that logs its commands; only the trial links without the standard library."""

    @pytest.fixture(autouse=True)
    def cache(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    @pytest.fixture
    def build(self, native: Target, launcher: str, tmp_path: Path) -> Build:
        compiler = tmp_path / "clang"
        compiler.write_text(f'#!/bin/sh\necho "$*" >> {tmp_path}/log\nexec {need("clang-22")} "$@"\n')
        compiler.chmod(0o755)
        made = Build(launcher, built_plugin(native, "inliner", "22"), tmp_path, "thin", str(compiler))
        (tmp_path / "a.c").write_text(SOURCE)
        # GNU ld reads no bitcode here.
        subprocess.run([need("clang-22"), "-Oz", "-c", "a.c", "-o", "a.o"], cwd=tmp_path, check=True)
        return made

    def trials(self, build: Build, linker: Path) -> tuple[int, str]:
        """Link by a policy without a server; give the number of trials so far, and the messages."""
        said = build.link("--policy", "always", "--server", "/nowhere", linker=str(linker))
        commands = (build.folder / "log").read_text().splitlines()
        return sum("-nostdlib" in command and "-###" not in command for command in commands), said

    def copied(self, build: Build, name: str) -> Path:
        linker = build.folder / "ld"
        linker.unlink(missing_ok=True)
        shutil.copy(Path(str(shutil.which(need(name)))).resolve(), linker)
        return linker

    def test_a_second_link_tries_nothing(self, build: Build) -> None:
        linker = self.copied(build, "ld.lld-22")
        assert self.trials(build, linker)[0] == 1
        assert self.trials(build, linker)[0] == 1

    def test_another_file_in_its_place_is_tried(self, build: Build) -> None:
        counted, said = self.trials(build, self.copied(build, "ld.lld-22"))
        assert (counted, "loads no plugins" in said) == (1, False)
        counted, said = self.trials(build, self.copied(build, "ld.bfd"))
        assert (counted, "loads no plugins" in said) == (2, True)

    def test_a_script_is_tried_each_time(self, build: Build) -> None:
        linker = build.folder / "ld"
        linker.write_text(f'#!/bin/sh\nexec {need("ld.lld-22")} "$@"\n')
        linker.chmod(0o755)
        assert self.trials(build, linker)[0] == 1
        assert self.trials(build, linker)[0] == 2


def test_a_store_without_a_section_for_linking_says_so_and_links_plainly(build: Build) -> None:
    build.link()
    plain = build.object()
    said = build.link(*build.store("compile"))
    assert "all decisions at link time are the compiler's own: tuned.db has no section with phase=link" in said
    assert build.object() == plain


def test_a_label_with_a_comma_leaves_the_link_to_llvm_and_is_named(build: Build, server: RunningServer) -> None:
    build.link()
    plain = build.object()
    said = build.link("--policy", "always", "--server", server.socket, "--label", "note=a,b")
    assert said.count("\n") == 1
    assert "note has a comma itself" in said
    assert build.object() == plain


def test_a_phase_that_is_left_out_is_llvms(build: Build) -> None:
    build.link()
    plain = build.object()
    said = build.link(*build.store(), POLICYBRIDGE_PHASES="compile")
    assert "all decisions at link time are the compiler's own: POLICYBRIDGE_PHASES is compile" in said
    assert build.object() == plain


CACHED = ("-Wl,--thinlto-cache-dir=cache",)


@pytest.fixture
def thin(native: Target, launcher: str, tmp_path: Path) -> Build:
    """Compile the source for ThinLTO."""
    build = Build(launcher, built_plugin(native, "inliner", "22"), tmp_path, "thin")
    (tmp_path / "a.c").write_text(SOURCE)
    build.compile()
    return build


def test_thinltos_cache_keeps_no_object_of_another_store(thin: Build, tmp_path: Path) -> None:
    thin.link(flags=CACHED)
    plain = thin.object()
    store = thin.store()
    thin.link(*store, flags=CACHED)
    tuned = thin.object()
    assert tuned != plain
    assert len(list((tmp_path / "cache").glob("llvmcache-*"))) == 2
    thin.link(*store, flags=CACHED)
    assert (thin.object(), len(list((tmp_path / "cache").glob("llvmcache-*")))) == (tuned, 2)
    first, heading, *_ = (tmp_path / "tuned.db").read_text().splitlines()
    (tmp_path / "tuned.db").write_text(f"{first}\n{heading}\n{'0' * 16} inline\n")
    thin.link(*store, flags=CACHED)
    assert thin.object() == plain


@pytest.mark.parametrize("jobs", ["-flto-jobs=1", "-Wl,--thinlto-jobs=1", "@words", "@outer"])
def test_thinltos_cache_keeps_apart_the_objects_of_one_job_in_which_switches_are_set(
    thin: Build, tmp_path: Path, jobs: str
) -> None:
    heading = Heading(22, "Oz", "site", None, "a.c", "link")
    write_store(Store([Section(heading, (), [PassChoice(ALL_FUNCTIONS, "set", "ext-tsp")])]), tmp_path / "tuned.db")
    (tmp_path / "words").write_text("-flto-jobs=1\n")
    (tmp_path / "outer").write_text("@words\n" * 2)
    store = ("--decisions", "tuned.db")
    thin.link(*store, flags=CACHED)
    plain = thin.object()
    thin.link(*store, flags=(*CACHED, jobs))
    assert thin.object() != plain
    thin.link(*store, flags=CACHED)
    assert thin.object() == plain


def test_thinltos_cache_is_not_used_for_a_policy_whose_version_is_open(
    thin: Build, tmp_path: Path, server: RunningServer
) -> None:
    said = thin.link("--policy", "always", "--server", server.socket, flags=CACHED)
    assert said.count("ThinLTO's cache is not used") == 1
    assert not (tmp_path / "cache").exists()


def test_thinltos_cache_is_used_where_the_phases_leave_the_link_to_llvm(
    thin: Build, tmp_path: Path, server: RunningServer
) -> None:
    thin.link("--policy", "always", "--server", server.socket, flags=CACHED, POLICYBRIDGE_PHASES="compile")
    assert list((tmp_path / "cache").glob("llvmcache-*"))


def test_a_whole_build_by_cmake_decides_at_link_time_and_its_program_runs_as_before(
    native: Target, launcher: str, tmp_path: Path, server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin = built_plugin(native, "inliner", "22")
    monkeypatch.setenv("POLICYBRIDGE_PLUGINS", str(plugin.parent))
    (tmp_path / "part.c").write_text(SOURCE.replace("int main(void)", "int part(void)"))
    main = '#include <stdio.h>\nint part(void);\nint main(void) { printf("%d\\n", part()); return 0; }\n'
    (tmp_path / "main.c").write_text(main)
    lists = "cmake_minimum_required(VERSION 3.20)\nproject(p C)\nadd_executable(program part.c main.c)\n"
    (tmp_path / "CMakeLists.txt").write_text(lists)
    flags = ("-DCMAKE_C_FLAGS=-Oz -flto=thin", f"-DCMAKE_EXE_LINKER_FLAGS=--ld-path={need('ld.lld-22')}")

    def program(*launching: str) -> Path:
        folder = tmp_path / ("decided" if launching else "plain")
        compiler = " ".join([*launching, need("clang-22")])
        for words in (["-S", str(tmp_path), "-B", str(folder), "-G", "Ninja", *flags], ["--build", str(folder)]):
            subprocess.run([need("cmake"), *words], env={**os.environ, "CC": compiler}, check=True, capture_output=True)
        return folder / "program"

    plain, decided = program(), program(launcher, "--policy", "linking", "--server", server.socket, "--")
    said = [subprocess.run([path], capture_output=True, check=True).stdout for path in (plain, decided)]
    assert said[0] == said[1]
    assert decided.read_bytes() != plain.read_bytes()

"""The plugin in LLD: with -flto a policy and a store decide at link time, by names that outlast edits."""

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from policybridge_client.decisions import Decision, Heading, Section, SiteLog, Store, read_sites, write_store
from policybridge_client.decisions.passes import ALL_FUNCTIONS, ALTERNATIVES, PassChoice
from tests.conftest import RunningServer
from tests.native.conftest import Target
from tests.native.llvm.plugins import built_plugin, need
from tests.native.llvm.test_pass_choices import options_of
from tests.native.llvm.test_pass_sessions import POLICY
from tests.repositories import answering, write_python

MAJOR = "22"
MODES = ("full", "thin")

PART = """
int sink(int);
{more}
static __attribute__((noinline)) int helper(int x) {{ return sink(x) * {factor} + x; }}
static int step(int x) {{ int s = x; for (int i = 0; i < {factor}; ++i) s += helper(s ^ i); return s; }}
int part{n}(int x) {{ return step(x) + step(x + {n}); }}
"""
MAIN = "int sink(int x) { return x; }\nint part1(int); int part2(int);\nint main(void) { return part1(part2(3)); }\n"


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    repository = tmp_path_factory.mktemp("policies")
    write_python(repository, "always", answering("1"))
    write_python(repository, "compiling", answering("1"), '[scope]\nphase = ["compile"]')
    write_python(repository, "oxidised", answering("1"), '[scope]\nlanguage = ["rust"]')
    tight = POLICY.format(number=list(ALTERNATIVES).index("tight"))
    write_python(repository, "tight", tight, 'decides = ["pass_choice"]')
    return repository


@dataclass(frozen=True)
class Program:
    """A program of three sources, compiled with clang and linked by LLD, with the plugin or without."""

    plugin: Path
    folder: Path
    mode: str

    def compile(self, more: str = "", *, plugin: bool = False, **settings: str) -> str:
        """Compile all sources; ``more`` is further text of the first. Give the messages."""
        (self.folder / "main.c").write_text(MAIN)
        for n in (1, 2):
            (self.folder / f"part{n}.c").write_text(PART.format(n=n, factor=n + 6, more=more if n == 1 else ""))
        loading = [f"-fpass-plugin={self.plugin}"] if plugin else []
        words = [need(f"clang-{MAJOR}"), "-Oz", f"-flto={self.mode}", *loading, "-c", "main.c", "part1.c", "part2.c"]
        return self._run(words, settings)

    def link(self, *flags: str, plugin: bool = True, **settings: str) -> str:
        """Link the objects to ``program``; give the messages."""
        loading = [f"-Wl,--load-pass-plugin={self.plugin}"] if plugin else []
        driver = [need(f"clang-{MAJOR}"), f"--ld-path={need(f'ld.lld-{MAJOR}')}", "-Oz", f"-flto={self.mode}"]
        return self._run([*driver, *loading, *flags, "main.o", "part1.o", "part2.o", "-o", "program"], settings)

    def logged(self) -> dict[str, SiteLog]:
        """Link, and give the log of each module by the module's name."""
        self.link(sites="%m.sites")
        return {path.stem: read_sites(path) for path in self.folder.glob("*.sites")}

    def object(self, name: str) -> bytes:
        return (self.folder / name).read_bytes()

    def _run(self, words: list[str], settings: Mapping[str, str]) -> str:
        plain = {name: value for name, value in os.environ.items() if not name.startswith("POLICYBRIDGE_")}
        given = {f"POLICYBRIDGE_{name.upper()}": value for name, value in settings.items()}
        done = subprocess.run(
            words, cwd=self.folder, env={**plain, **given}, capture_output=True, text=True, check=True
        )
        return done.stderr


@pytest.fixture(params=MODES)
def program(request: pytest.FixtureRequest, native: Target, tmp_path: Path) -> Program:
    made = Program(built_plugin(native, "inliner", MAJOR), tmp_path, request.param)
    made.compile()
    return made


def write_link_store(program: Program, phase: str = "link") -> str:
    """Write a store with the opposite of LLVM's decisions about the calls of ``step`` in the parts at link time."""
    sections = []
    for name, log in program.logged().items():
        rows = zip(log.keys, log.caller, log.callee, log.default, strict=True)
        decisions = [
            Decision(key, not default)
            for key, caller, callee, default in rows
            if caller.startswith("part") and callee.startswith("step")
        ]
        heading = Heading(int(MAJOR), "Oz", "site", None, name, phase)  # type: ignore[arg-type]
        sections += [Section(heading, decisions)] if decisions else []
    write_store(Store(sections), program.folder / "tuned.db")
    return str(program.folder / "tuned.db")


def test_a_policy_decides_at_link_time(program: Program, server: RunningServer) -> None:
    program.link(plugin=False)
    plain = program.object("program")
    said = program.link(server=server.socket, policy="always", stats="%m.json")
    assert said == ""
    assert program.object("program") != plain
    counted = [json.loads(path.read_text()) for path in program.folder.glob("*.json")]
    assert sum(stats["decisions"] for stats in counted) > 0
    assert {stats["policy"]["name"] for stats in counted if stats["decisions"]} == {"always"}


def test_before_linking_llvm_decides_and_tells_so_once_a_module(program: Program, server: RunningServer) -> None:
    plain = program.object("part1.o")
    said = program.compile(plugin=True, server=server.socket, policy="always")
    assert program.object("part1.o") == plain
    assert said.count("the phase of the compilation is 'pre-link'") == 3


def test_the_phases_that_are_given_are_those_in_which_a_policy_decides(program: Program, server: RunningServer) -> None:
    plain = program.object("part1.o")
    asking = {"server": server.socket, "policy": "always"}
    assert program.compile(plugin=True, phases="compile", **asking) == ""
    assert program.object("part1.o") == plain
    assert program.compile(plugin=True, phases="pre-link,link", **asking) == ""
    assert program.object("part1.o") != plain


def test_a_wrong_phase_is_told_and_llvm_decides(program: Program, server: RunningServer) -> None:
    said = program.link(server=server.socket, policy="always", phases="linking")
    assert "POLICYBRIDGE_PHASES is compile, pre-link, link or several with commas, not 'linking'" in said


def test_outside_of_its_scope_a_policy_does_not_decide_at_link_time(program: Program, server: RunningServer) -> None:
    program.link(plugin=False)
    plain = program.object("program")
    said = program.link(server=server.socket, policy="compiling")
    assert "compiling@1 is for phase compile, and the compilation has 'link'" in said
    assert program.object("program") == plain


def test_a_policy_for_a_language_decides_about_others_only_where_modules_are_merged(
    program: Program, server: RunningServer
) -> None:
    program.compile()
    said = program.link(server=server.socket, policy="oxidised")
    told = "is for language rust, and the compilation has 'c'"
    assert said.count(told) == (0 if program.mode == "full" else 1)


def test_a_store_of_link_decisions_applies_at_link_time(program: Program) -> None:
    program.link(plugin=False)
    plain = program.object("program")
    store = write_link_store(program)
    assert program.link(decisions=store, stats="%m.json") == ""
    assert program.object("program") != plain
    told = [json.loads(path.read_text())["store"] for path in program.folder.glob("*.json")]
    assert sum(store["applied"] for store in told if store) > 0


def test_a_store_of_other_phases_does_not_apply_at_link_time(program: Program) -> None:
    program.link(plugin=False)
    plain = program.object("program")
    store = write_link_store(program, "compile")
    program.link(decisions=store)
    assert program.object("program") == plain


def test_a_store_is_not_applied_before_linking_unless_that_is_ordered(program: Program) -> None:
    plain = program.object("part1.o")
    log = program.folder / "part1.c.log"
    program.compile(plugin=True, sites="%m.log")
    sites = read_sites(log)
    rows = zip(sites.keys, sites.callee, sites.default, strict=True)
    decisions = [Decision(key, not default) for key, callee, default in rows if callee == "step"]
    assert decisions
    store = str(program.folder / "before.db")
    write_store(Store([Section(Heading(int(MAJOR), "Oz", "site", None, "part1.c"), decisions)]), store)
    said = program.compile(plugin=True, decisions=store)
    assert "before.db is not applied to part1.c in the phase 'pre-link'" in said
    assert program.object("part1.o") == plain
    assert program.compile(plugin=True, decisions=store, phases="pre-link") == ""
    assert program.object("part1.o") != plain


def test_full_lto_has_one_module_by_the_name_of_the_program(native: Target, tmp_path: Path) -> None:
    program = Program(built_plugin(native, "inliner", MAJOR), tmp_path, "full")
    program.compile()
    assert list(program.logged()) == ["program"]


def test_calls_keep_their_names_when_another_source_is_edited(program: Program) -> None:
    def keys() -> set[str]:
        # Local functions of both parts have the same names, which LLVM makes different ones at link time.
        return {
            key
            for log in program.logged().values()
            for key, caller in zip(log.keys, log.caller, strict=True)
            if caller == "part2"
        }

    before = keys()
    # Numbers behind equal names count the whole program's: this shifts those of part2.c.
    program.compile("static __attribute__((used)) int twin(int x) { return sink(x); }")
    (program.folder / "main.c").write_text(f"{MAIN}static __attribute__((used)) int twin(int x) {{ return x; }}\n")
    subprocess.run([f"clang-{MAJOR}", "-Oz", f"-flto={program.mode}", "-c", "main.c"], cwd=program.folder, check=True)
    assert before
    assert keys() == before


def test_an_exported_local_function_has_the_name_that_it_had_before_linking(native: Target, tmp_path: Path) -> None:
    program = Program(built_plugin(native, "inliner", MAJOR), tmp_path, "thin")
    program.compile()
    names = {name for log in program.logged().values() for name in (*log.caller, *log.callee, *log.origin)}
    assert "helper" in names
    assert not [name for name in names if ".llvm." in name]


SWITCHED = """
#define CASE(n) case n * 3: return get(v + n) * n;
static __attribute__((noinline)) int get(int v) { return v * 3 + 1; }
int part1(int v) { switch (v) { CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) } return get(v); }
int part2(int a) { int s = get(a); return sink(s) + get(a * 3) * a + get(a ^ 9) * s; }
__attribute__((used)) static int pressed(int *a, int n, int b) {
  int s = 0, t = 1, u = 2, v = 3;
  for (int i = 0; i < n; i++) { s += a[i] * t + sink(u); t ^= a[i + n] + s; u += sink(t) * v; v -= s + a[u & 7] + b; }
  return s + t * u - v * sink(s ^ v) + b;
}
"""
"""A small table, a caller that need not spare registers which `get` leaves alone, and more values than registers."""


def switch_program(native: Target, folder: Path, mode: str) -> Program:
    program = Program(built_plugin(native, "inliner", MAJOR), folder, mode)
    program.compile()
    (folder / "part1.c").write_text(f"int sink(int);{SWITCHED}")
    (folder / "part2.c").write_text("int unused(int x) { return x; }\n")
    words = ["-Oz", f"-flto={mode}", "-c", "part1.c", "part2.c"]
    subprocess.run([f"clang-{MAJOR}", *words], cwd=folder, check=True)
    return program


def write_choices(program: Program, *choices: str) -> str:
    """Write a store that makes choices for all functions of each module at link time."""
    made = [PassChoice(ALL_FUNCTIONS, *choice.split(" ", 1)) for choice in choices]  # type: ignore[arg-type]
    names = ["program", "main.c", "part1.c"]
    sections = [Section(Heading(int(MAJOR), "Oz", "site", None, name, "link"), (), made) for name in names]
    write_store(Store(sections), program.folder / "choices.db")
    return str(program.folder / "choices.db")


@pytest.mark.parametrize("switches", [("no-small-tables",), ("basic-regalloc",), ("no-small-tables", "basic-regalloc")])
@pytest.mark.parametrize(("mode", "jobs"), [("full", ()), ("thin", ("-flto-jobs=1",))])
def test_a_switch_of_a_store_gives_the_program_of_its_options_where_modules_are_linked_in_turn(
    native: Target, tmp_path: Path, mode: str, jobs: tuple[str, ...], switches: tuple[str, ...]
) -> None:
    program = switch_program(native, tmp_path, mode)
    program.link(*jobs, plugin=False)
    plain = program.object("program")
    program.link(*jobs, decisions=write_choices(program, *(f"set {switch}" for switch in switches)))
    made = program.object("program")
    words = [word for switch in switches for word in options_of(switch) if word != "-mllvm"]
    program.link(*jobs, *(f"-Wl,-mllvm,{word}" for word in words), plugin=False)
    assert made == program.object("program") != plain


@pytest.mark.parametrize("word", ["--lto-CGO0", "--lto-partitions=2"])
def test_a_linker_that_generates_code_otherwise_keeps_its_allocator(native: Target, tmp_path: Path, word: str) -> None:
    program = switch_program(native, tmp_path, "full")
    program.link(f"-Wl,{word}", plugin=False)
    plain = program.object("program")
    (tmp_path / "words").write_text(f"{word}\n")
    for given in (f"-Wl,{word}", "-Wl,@words"):
        program.link(given, decisions=write_choices(program, "set basic-regalloc"))
        assert program.object("program") == plain


@pytest.mark.parametrize(
    "jobs", [(), ("-flto-jobs=2",), ("-flto-jobs=1", "-Wl,--thinlto-jobs=2"), ("-flto-jobs=1", "-Wl,@words")]
)
def test_a_switch_of_a_store_is_not_set_by_thin_lto_whose_threads_would_share_it(
    native: Target, tmp_path: Path, jobs: tuple[str, ...]
) -> None:
    program = switch_program(native, tmp_path, "thin")
    (tmp_path / "words").write_text("--thinlto-jobs=2\n")
    program.link(plugin=False)
    plain = program.object("program")
    switches = ("set no-small-tables", "set basic-regalloc")
    said = program.link(*jobs, decisions=write_choices(program, *switches))
    assert program.object("program") == plain
    assert "0 of 2 decisions applied to part1.c; ThinLTO sets switches by one job alone: -flto-jobs=1\n" in said


def test_switches_of_a_module_end_before_thin_lto_optimises_the_next_one(native: Target, tmp_path: Path) -> None:
    program = switch_program(native, tmp_path, "thin")
    more = (tmp_path / "part1.c").read_text().replace("part", "other")
    (tmp_path / "part2.c").write_text(f"{more}__attribute__((used)) int (*used[])(int) = {{other1, other2}};\n")
    # ThinLTO begins with the largest module.
    with (tmp_path / "part1.c").open("a") as file:
        file.writelines(f"int more{n}(int x) {{ return sink(x * {n}) / {n}; }}\n" for n in range(3, 60))
    subprocess.run([f"clang-{MAJOR}", "-Oz", "-flto=thin", "-c", "part1.c", "part2.c"], cwd=tmp_path, check=True)

    def objects(store: str = "") -> list[bytes]:
        program.link("-flto-jobs=1", "-Wl,--lto-obj-path=made", plugin=bool(store), decisions=store)
        return [path.read_bytes() for path in sorted(tmp_path.glob("made*"))]

    switches = ("set no-small-tables", "set basic-regalloc")
    plain, switched = objects(), objects(write_choices(program, *switches))
    assert [one == other for one, other in zip(plain, switched, strict=True)].count(False) == 1


def test_switches_of_the_merged_module_do_not_reach_modules_that_thin_lto_optimises_behind_it(
    native: Target, tmp_path: Path
) -> None:
    program = switch_program(native, tmp_path, "full")
    more = (tmp_path / "part1.c").read_text().replace("part", "other")
    (tmp_path / "part1.c").with_name("thin.c").write_text(
        f"{more}__attribute__((used)) int (*used[])(int) = {{other1, other2}};\n"
    )
    subprocess.run([f"clang-{MAJOR}", "-Oz", "-flto=thin", "-c", "thin.c"], cwd=tmp_path, check=True)

    def objects(store: str = "") -> list[bytes]:
        program.link("thin.o", "-Wl,--lto-obj-path=made", plugin=bool(store), decisions=store)
        return [path.read_bytes() for path in sorted(tmp_path.glob("made*"))]

    switches = ("set no-small-tables", "set basic-regalloc")
    plain, switched = objects(), objects(write_choices(program, *switches))
    assert len(plain) == 2
    assert [one == other for one, other in zip(plain, switched, strict=True)] == [False, True]


def test_a_policy_chooses_passes_of_code_generation_under_full_lto(
    native: Target, tmp_path: Path, server: RunningServer
) -> None:
    program = switch_program(native, tmp_path, "full")
    program.link(plugin=False)
    plain = program.object("program")
    said = program.link(server=server.socket, policy="tight", stats="stats.json")
    assert said == ""
    told = json.loads((tmp_path / "stats.json").read_text())["passes"]
    assert told["decisions"] == told["advice"]["tight"] > 0
    made = program.object("program")
    program.link(decisions=write_choices(program, *ALTERNATIVES["tight"]))
    assert made == program.object("program") != plain

"""``policybridge check`` with real builds: growth is found, LLVM's own decisions change nothing, failures are shown."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from policybridge_client.cli import main
from policybridge_client.decisions.passes import ALL_FUNCTIONS
from tests.conftest import RunningServer, running_server
from tests.native.conftest import Target
from tests.native.llvm.plugins import built_plugin, need
from tests.repositories import answering, write_python

_PART = """
int sink(int);
int step(int x) {
  int sum = x;
  for (int i = 0; i < 9; ++i) {
    sum += sink(sum ^ i) * x - sink(sum * 3) / (x | 1);
    if (sum & i)
      sum ^= sink(sum - i) + sink(sum + x) * 7;
  }
  return sum;
}
int part(int x) { return step(x) + step(x + 1) + step(x + 2) + step(x + 3) + step(x + 5) + step(x + 8); }
"""
_MAIN = "int part(int);\nint sink(int x) { return x; }\nint main(int n, char **) { return part(n); }\n"
_MAKEFILE = """
CXXFLAGS = -Oz
program: main.o part.o
\t$(CXX) -o $@ $^ -lstdc++
"""
_CMAKE = """
cmake_minimum_required(VERSION 3.13)
project(program CXX)
add_library(part SHARED part.cpp main.cpp)
add_executable(program main.cpp part.cpp)
"""

_PASSES = """
class Policy:
    def evaluate(self, observation, session):
        return observation["inlining_default"]

    def pass_choice(self, observation, session):
        return 4
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    repository = tmp_path_factory.mktemp("policies")
    write_python(repository, "everything", answering("1"))
    write_python(repository, "default", answering('observation["inlining_default"]'))
    write_python(repository, "sized", answering('observation["inlining_default"]'), '[scope]\nlevel = ["Oz"]')
    write_python(repository, "passes", _PASSES, 'decides = ["pass_choice"]')
    with running_server(repository, tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, launcher: str) -> Path:
    """Write a project, and be in its folder."""
    folder = tmp_path / "project"
    folder.mkdir()
    for name, text in (("part.cpp", _PART), ("main.cpp", _MAIN), ("Makefile", _MAKEFILE), ("CMakeLists.txt", _CMAKE)):
        (folder / name).write_text(text)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("POLICYBRIDGE_LAUNCHER", launcher)
    return folder


def check(server: RunningServer, policy: str, *words: str, build: tuple[str, ...] = ("make",)) -> int:
    asking = ["--policy", policy, "--server", server.socket, "--compiler", need("clang-22")]
    return main(["check", *asking, *words, "--", need(build[0]), *build[1:]])


def rows(output: str) -> dict[tuple[str, str], list[str]]:
    """Give the cells of each row by program and part."""
    cells = [line.split() for line in output.splitlines()]
    return {(row[0], row[1]): row[2:] for row in cells if len(row) > 4 and row[1] in ("text", "code", "data", "file")}


def test_a_policy_that_inlines_everything_is_found_and_the_project_stays_as_it_was(
    project: Path, server: RunningServer, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path: path.read_bytes() for path in project.iterdir()}
    assert check(server, "everything") == 1
    told = capsys.readouterr()
    assert "program is larger by text: +" in told.err
    old, new, *_ = rows(told.out)["program", "text"]
    assert int(new.replace(",", "")) > int(old.replace(",", ""))
    assert {path: path.read_bytes() for path in project.iterdir()} == before


@pytest.mark.usefixtures("project")
def test_the_result_as_json_has_the_sizes_of_both_builds_and_the_growth(
    server: RunningServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(server, "everything", "--json") == 1
    told = json.loads(capsys.readouterr().out)
    (program,) = told["programs"]
    assert program["name"] == "program"
    assert program["after"]["text"] > program["before"]["text"] > 0
    assert [line.partition(":")[0] for line in told["larger"]] == ["program is larger by text"]


@pytest.mark.usefixtures("project")
def test_the_newest_clang_on_path_compiles_unless_one_is_named(
    server: RunningServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for tool in ("clang-19", "clang-22"):
        need(tool)
    asking = ["check", "--policy", "default", "--server", server.socket, "--", "/bin/sh", "-c", "$CC --version; exit 1"]
    tools = tmp_path / "tools"
    tools.mkdir()
    monkeypatch.setenv("PATH", str(tools))
    assert main(asking) == 2
    assert "there is no clang on PATH" in capsys.readouterr().err
    for major in ("19", "22"):
        for name in ("clang", "clang++"):
            (tools / f"{name}-{major}").symlink_to(f"/usr/lib/llvm-{major}/bin/{name}")
        assert main(asking) == 2
        assert f"clang version {major}." in capsys.readouterr().err


@pytest.mark.usefixtures("project")
def test_growth_within_the_tolerance_and_of_other_sections_is_no_failure(server: RunningServer) -> None:
    assert check(server, "everything", "--tolerance", "1000") == 0
    assert check(server, "everything", "--judge", "data") == 0


@pytest.mark.usefixtures("project")
def test_llvms_own_decisions_give_identical_programs(
    server: RunningServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    building = ("bash", "-ec", f"make && cp program {tmp_path}/made-$(ls {tmp_path} | grep -c made)")
    words = [word for part in ("text", "code", "data", "file") for word in ("--judge", part)]
    assert check(server, "default", *words, build=building) == 0
    assert all(row[2] == "+0" for row in rows(capsys.readouterr().out).values())
    assert (tmp_path / "made-0").read_bytes() == (tmp_path / "made-1").read_bytes()


@pytest.mark.usefixtures("project")
def test_libraries_and_programs_of_cmake_are_compared_without_its_probes(
    server: RunningServer, capsys: pytest.CaptureFixture[str]
) -> None:
    building = ("bash", "-ec", "cmake -S . -B build -DCMAKE_CXX_FLAGS=-Oz && cmake --build build")
    assert check(server, "everything", build=building) == 1
    assert {name for name, _ in rows(capsys.readouterr().out)} == {"build/libpart.so", "build/program"}


def test_a_build_that_fails_is_shown_with_its_last_lines(
    project: Path, server: RunningServer, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "main.cpp").write_text("int main() { return missing; }\n")
    assert check(server, "default") == 2
    told = capsys.readouterr().err
    assert "the plain build ended with status 2" in told
    assert "use of undeclared identifier 'missing'" in told


@pytest.mark.usefixtures("project")
def test_a_build_without_advice_fails_and_is_no_comparison_of_two_plain_builds(
    server: RunningServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(server, "unknown") == 2
    assert "the policy build ended with status 2" in capsys.readouterr().err


@pytest.fixture
def plugins(native: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the check find the plugin."""
    monkeypatch.setenv("POLICYBRIDGE_PLUGINS", str(built_plugin(native, "inliner", "22").parent))


@pytest.mark.usefixtures("project", "plugins")
def test_a_policy_that_chooses_passes_alone_decides_by_the_plugin(
    server: RunningServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(server, "passes") == 0
    assert rows(capsys.readouterr().out)["program", "text"][2] != "+0"


@pytest.mark.usefixtures("plugins")
@pytest.mark.parametrize("flags", ["-Oz", "-Oz -flto --ld-path=ld.lld-22"])
def test_growth_by_the_plugin_is_found_without_lto_and_at_link_time(
    project: Path, server: RunningServer, capsys: pytest.CaptureFixture[str], flags: str
) -> None:
    makefile = f"program: main.cpp part.cpp\n\t$(CXX) {flags} -o $@ $^\n"
    (project / "Makefile").write_text(makefile)
    need("ld.lld-22")
    assert check(server, "everything") == 1
    assert "program is larger by text: +" in capsys.readouterr().err


@pytest.mark.usefixtures("plugins")
def test_the_plugins_words_give_no_warning_to_commands_that_do_not_compile(
    project: Path, server: RunningServer, tmp_path: Path
) -> None:
    commands = "$(CXX) -Werror -E main.cpp\n\t$(CXX) -Werror -o program $^ -lstdc++\n"
    (project / "Makefile").write_text(f"CXXFLAGS = -Oz\nprogram: main.o part.o\n\t{commands}")
    assert check(server, "default", "--work", str(tmp_path / "work")) == 0
    plain, policy = ((tmp_path / f"work/{name}.log").read_text() for name in ("plain", "policy"))
    folder = r"compilers-\w+"
    assert re.sub(folder, "", plain) == re.sub(folder, "", policy)


_CONFIGURE = """
echo "int f(int); static int g(int x) { return f(x); } int h(int x) { return g(x) + g(x + 1); }" > conftest.cc
if test -z "`$CXX -O2 -c conftest.cc 2>&1`"; then flags=-O2; else flags=-O0; fi
echo "accepts $flags"
$CXX $flags -o other main.cpp part.cpp && make
"""


@pytest.mark.usefixtures("project", "plugins")
@pytest.mark.parametrize("way", [(), ("--interactive",)])
def test_a_configure_script_that_takes_each_line_for_a_refusal_finds_the_same_flags_in_both_builds(
    server: RunningServer, tmp_path: Path, way: tuple[str, ...]
) -> None:
    assert check(server, "sized", "--work", str(tmp_path / "work"), *way, build=("bash", "-ec", _CONFIGURE)) == 0
    for name in ("plain", "policy"):
        assert "accepts -O2" in (tmp_path / f"work/{name}.log").read_text()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    file = tmp_path / "store.decisions"
    section = "module llvm=22 level=Oz by=site digest=- path=part.cpp"
    file.write_text(f"policybridge-decisions 1\n{section}\n{ALL_FUNCTIONS} skip x86-isel\n")
    return file


def check_store(store: Path) -> int:
    return main(["check", "--decisions", str(store), "--compiler", need("clang-22"), "--", need("make")])


@pytest.mark.usefixtures("project")
def test_a_store_is_applied_without_a_server(
    store: Path, native: Target, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("POLICYBRIDGE_PLUGINS", str(built_plugin(native, "inliner", "22").parent))
    assert check_store(store) == 0
    assert rows(capsys.readouterr().out)["program", "text"][2] != "+0"


@pytest.mark.usefixtures("project")
def test_a_store_that_no_compiler_applies_is_an_error_and_no_comparison_of_two_plain_builds(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store.write_text(store.read_text().replace("path=part.cpp", "path=another.cpp"))
    assert check_store(store) == 2
    assert "applied no decision; let it start the compilers by $CC, $CXX or PATH" in capsys.readouterr().err


def test_a_cache_that_tells_compilers_apart_by_their_paths_as_go_s_returns_no_object_of_the_other_build(
    project: Path, tmp_path: Path, server: RunningServer
) -> None:
    (project / "build.sh").write_text(
        f"for part in main part; do kept={tmp_path}/$(echo $CXX $part | cksum | cut -d' ' -f1).o\n"
        "test -f $kept || $CXX -Oz -c $part.cpp -o $kept; cp $kept $part.o; done; $CXX main.o part.o -o program\n"
    )
    assert check(server, "everything", build=("sh", "build.sh")) == 1


@pytest.mark.usefixtures("project")
def test_a_build_that_links_nothing_is_an_error(server: RunningServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(server, "default", build=("make", "part.o")) == 2
    assert "the plain build linked no program" in capsys.readouterr().err


@pytest.mark.usefixtures("project")
def test_a_project_that_stands_built_by_the_same_compiler_is_compared_where_the_build_makes_all_of_it_again(
    server: RunningServer, capsys: pytest.CaptureFixture[str]
) -> None:
    subprocess.run(["make", f"CXX={need('clang++-22')}"], check=True, capture_output=True)
    assert check(server, "everything", build=("make", "-B")) == 1
    assert "program is larger by text: +" in capsys.readouterr().err


@pytest.mark.usefixtures("project")
def test_a_folder_within_the_project_is_refused(server: RunningServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(server, "default", "--work", "work") == 2
    assert "name one outside" in capsys.readouterr().err


def test_the_folder_keeps_the_build_and_the_logs(project: Path, server: RunningServer, tmp_path: Path) -> None:
    assert check(server, "default", "--work", str(tmp_path / "work")) == 0
    assert (tmp_path / "work/project/program").exists()
    assert {path.name for path in (tmp_path / "work").glob("*.log")} == {"plain.log", "policy.log"}
    assert not (project / "program").exists()

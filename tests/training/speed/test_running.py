"""The user's command that runs a program, and counts that are the same in each folder."""

import shutil
import subprocess
from pathlib import Path

import pytest

from policybridge_core.errors import InvalidError, NotFoundError, PreconditionError
from policybridge_train.compiling.limits import Limits
from policybridge_train.processes.process import Running
from policybridge_train.speed.running import RunCommand, Runner
from policybridge_train.tasks.callgrind import TAKEN, Counted
from tests.native.llvm.plugins import need

_SOURCE = """
#include <stdio.h>
#include <string.h>
int main(int count, char **words) {
  char text[4096];
  unsigned sum = 0;
  for (int i = 0; i < 300; i++) {
    memset(text, i, sizeof text);
    for (unsigned at = 0; at < sizeof text; at += 64) sum += text[at] * strlen(words[count - 1]);
    if (sum % 3) sum ^= (unsigned)(__UINTPTR_TYPE__)text >> 4;
  }
  return puts(sum == 7 ? "seven" : "another") < 0;
}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "bench").write_bytes(b"")
    (tmp_path / "my text").write_bytes(b"")
    return tmp_path


@pytest.mark.parametrize("given", ["< 'my text'", "<'my text'"])
def test_a_command_has_settings_before_its_program_and_an_input_behind_it(folder: Path, given: str) -> None:
    command = RunCommand.parse(f"A=1 LD_LIBRARY_PATH= ./bench -c 'a b' 'a;b' \"<#>\" {given}", folder)
    assert command.program == folder / "bench"
    assert command.arguments == ("-c", "a b", "a;b", "<#>")
    assert command.stdin == folder / "my text"
    assert command.environment["A"] == "1"
    assert {"PATH", "LC_ALL", "LD_LIBRARY_PATH"} <= command.environment.keys()


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("", InvalidError, "names no program"),
        ("A=1", InvalidError, "names no program"),
        ("'./bench", InvalidError, "cannot be read"),
        ("./bench | sort", InvalidError, "there is no shell"),
        ("./bench < input -c", InvalidError, "there is no shell"),
        ("./bench input; rm input", InvalidError, "there is no shell"),
        ("./bench 2>/dev/null", InvalidError, "there is no shell"),
        ("./bench <gone", NotFoundError, "no file"),
        ("./gone", NotFoundError, "left no program './gone'"),
    ],
)
def test_a_command_that_cannot_be_run_is_refused_with_the_reason(
    folder: Path, text: str, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        RunCommand.parse(text, folder)


def _counted(folder: Path) -> Counted:
    folder.mkdir(parents=True)
    (folder / "main.c").write_text(_SOURCE)
    subprocess.run(["gcc", "-O1", "-w", "main.c", "-o", "bench"], cwd=folder, check=True)
    with Runner(RunCommand.parse("./bench word", folder), Limits(), Running()) as runner:
        program = runner.place("a")
        program.write_bytes((folder / "bench").read_bytes())
        program.chmod(0o755)
        counted, ran = runner.count(program)
        assert ran.output == runner.time(program).output
        return counted


def test_a_run_costs_the_same_in_two_folders_with_another_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need("valgrind")
    need("gcc")
    first = _counted(tmp_path / "a")
    monkeypatch.setenv("A_VARIABLE_OF_THE_USER", "x" * 777)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    second = _counted(tmp_path / "a folder" / ("with a long name" * 9))
    assert first == second
    assert first.own["main"] > 0
    assert first.outside["main"] > 0
    # Misses and mispredicted branches cost, too.
    assert first.total > sum(first.own.values())


def _runner(folder: Path) -> Runner:
    return Runner(RunCommand.parse("./bench", folder), Limits(), Running())


def test_a_folder_that_a_killed_search_has_left_is_taken_over_and_those_of_others_are_not(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need("valgrind")
    monkeypatch.setattr("policybridge_train.speed.folders._FOLDER", str(folder))
    (folder / "mine").mkdir(mode=0o700)
    (folder / "policybridge-0000").symlink_to(folder / "mine")
    (folder / "policybridge-0001").mkdir()
    (folder / "policybridge-0001").chmod(0o777)
    left = folder / "policybridge-0002"
    (left / "a").mkdir(parents=True)
    left.chmod(0o700)
    (left / "a" / "bench").touch()
    with _runner(folder) as first, _runner(folder) as second:
        assert first.folder == left
        assert list(left.iterdir()) == []
        assert second.folder == folder / "policybridge-0003"
    assert not left.exists()
    assert (folder / "policybridge-0001").exists()


def test_a_program_that_never_stops_printing_is_ended_before_the_disk_is_full(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need("valgrind")
    monkeypatch.setattr("policybridge_train.processes.process.MOST_OUTPUT", 1 << 20)
    with _runner(folder) as runner:
        program = runner.place("a")
        program.symlink_to(shutil.which("yes") or "")
        with pytest.raises(PreconditionError, match="writes more than"):
            runner.time(program)


def test_a_run_that_is_ended_leaves_no_pipe_of_valgrind_s(tmp_path: Path) -> None:
    need("valgrind")
    shutil.copy(shutil.which("sleep") or "", tmp_path / "bench")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    command = RunCommand.parse(f"TMPDIR={temporary} ./bench 100", tmp_path)
    with Runner(command, Limits(seconds=2), Running()) as runner:
        program = runner.place("a")
        shutil.copy(tmp_path / "bench", program)
        with pytest.raises(PreconditionError, match="was ended after 2 seconds"):
            runner.count(program)
    assert [*temporary.iterdir()] == []


_FORKS = """
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
int work(int times) { volatile int sum = 0; for (int i = 0; i < times; i++) sum += i; return sum; }
int child_works(void) { return work(50000); }
int main(void) {
  if (!fork()) exit(child_works() == 7);
  wait(NULL);
  return work(1000) == 7;
}
"""


def test_the_cost_of_a_process_that_the_program_starts_is_not_counted(tmp_path: Path) -> None:
    need("valgrind")
    (tmp_path / "main.c").write_text(_FORKS)
    subprocess.run([need("gcc"), "-O1", "-fno-inline", "main.c", "-o", "bench"], cwd=tmp_path, check=True)
    with _runner(tmp_path) as runner:
        program = runner.place("a")
        program.write_bytes((tmp_path / "bench").read_bytes())
        program.chmod(0o755)
        first, again = (runner.count(program)[0] for _ in range(2))
    assert first == again
    assert first.own["main"] > 0
    assert "child_works" not in first.own
    assert first.own["work"] < 50000


def test_programs_that_print_the_path_by_which_they_are_run_print_the_same(tmp_path: Path) -> None:
    need("valgrind")
    (tmp_path / "main.c").write_text("#include <stdio.h>\nint main(int n, char **words) { return puts(*words) < 0; }\n")
    subprocess.run([need("gcc"), "main.c", "-o", "bench"], cwd=tmp_path, check=True)
    with _runner(tmp_path) as runner:
        programs = [runner.place(letter) for letter in "ab"]
        for program in programs:
            shutil.copy(tmp_path / "bench", program)
        (first, ran), (second, other) = (runner.count(program) for program in programs)
        assert ran.output == other.output == runner.time(programs[0]).output == runner.time(programs[1]).output
        assert first.own["main"] == second.own["main"] > 0


def test_the_taken_branches_of_a_program_without_lines_of_source_are_counted(tmp_path: Path) -> None:
    need("valgrind")
    (tmp_path / "main.c").write_text("int main(void) { for (volatile int i = 0; i < 100000; i++); return 0; }\n")
    subprocess.run([need("gcc"), "-O1", "main.c", "-o", "bench"], cwd=tmp_path, check=True)
    with _runner(tmp_path) as runner:
        shutil.copy(tmp_path / "bench", runner.place("a"))
        counted, _ = runner.count(runner.place("a"))
    assert 99_000 <= counted.events[TAKEN] < 210_000

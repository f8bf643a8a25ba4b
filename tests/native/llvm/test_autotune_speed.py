"""``policybridge autotune --objective cycles``: a real build, its program counted, and the store that keeps it."""

import hashlib
import json
import shlex
import signal
import subprocess
import time
from pathlib import Path

import pytest

from policybridge_client.cli import main
from policybridge_client.decisions import read_store
from policybridge_train.compiling.limits import Limits
from policybridge_train.processes.process import Running
from policybridge_train.speed.running import RunCommand, Runner
from tests.conftest import command
from tests.native.conftest import Target
from tests.native.llvm.plugins import built_plugin, need
from tests.training.ended import wait_until_gone
from tests.training.tuning.autotuning import CountedCompiler

_MAIN = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
unsigned work(const unsigned char *text, int size);
int main(int count, char **words) {
  static unsigned char text[1 << 14];
  FILE *file = fopen(words[1], "rb");
  const char *mode = count > 2 ? words[2] : "20";
  if (count > 3 && !strcmp(words[3], "alone") && !getenv("LD_PRELOAD")) printf("%d\\n", getpid());
  if (!file || !strcmp(mode, "fail")) return 3;
  if (!strcmp(mode, "wait")) pause();
  if (!strcmp(mode, "pid")) printf("%d\\n", getpid());
  int size = fread(text, 1, sizeof text, file);
  unsigned sum = 0;
  for (int i = 0; i < atoi(mode); i++) sum += work(text, size);
  printf("%u\\n", sum);
  return 0;
}
"""
_WORK = """
__attribute__((cold)) static unsigned mix(unsigned a) {
  a = (a ^ (a >> 16)) * 73u; a ^= a << 7; a = (a ^ (a >> 13)) * 97u; a ^= a >> 3; a += a << 9; a ^= a >> 11;
  a = (a ^ (a >> 5)) * 89u; a ^= a << 4; a += a << 6; a ^= a >> 8; a = (a ^ (a >> 2)) * 41u; a ^= a << 10;
  a = (a ^ (a >> 4)) * 61u; a ^= a << 3; a += a << 8; a ^= a >> 7; a = (a ^ (a >> 9)) * 83u; a ^= a << 5;
  return (a + (a << 5)) ^ 40503u;
}
unsigned cold(unsigned a) { return mix(a) + mix(a + 1); }
unsigned work(const unsigned char *text, int size) {
  unsigned sum = 0;
  for (int i = 0; i < size; i++) sum += mix(text[i]);
  return sum;
}
"""
"""The calls of mix are independent of each other, so that inlining saves time and not only instructions."""

_MAKEFILE = """CC = clang-22
CFLAGS = -O2
bench: main.o libwork.a
\t$(CC) -o $@ main.o -L. -lwork
libwork.a: work.o
\tar rcs $@ $^
script: bench
\tprintf '#!/bin/sh\\nexec ./bench "$$@"\\n' > $@ && chmod +x $@
"""


@pytest.fixture
def plugin(native: Target) -> Path:
    need("valgrind")
    return built_plugin(native, "inliner", "22")


@pytest.fixture
def project(tmp_path: Path, plugin: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("POLICYBRIDGE_PLUGINS", str(plugin.parent))
    monkeypatch.setenv("POLICYBRIDGE_LAUNCHER", "")
    folder = tmp_path / "a project"
    folder.mkdir()
    for name, text in (("main.c", _MAIN), ("work.c", _WORK), ("Makefile", _MAKEFILE)):
        (folder / name).write_text(text)
    (folder / "input").write_bytes(bytes(number * number % 251 for number in range(9000)))
    monkeypatch.chdir(folder)
    return folder


def _tune(*words: str) -> int:
    options = ["--objective", "cycles", "--budget", "6", "--pairs", "5", *words]
    return main(["autotune", *options, "--", "make", "-s", "-B", "bench", "script"])


def _run(run: str) -> tuple[int, str]:
    """Give the cycles and the output of the program that is in the folder."""
    given = RunCommand.parse(run, Path.cwd())
    with Runner(given, Limits(), Running()) as runner:
        program = runner.place("a")
        program.write_bytes(given.program.read_bytes())
        program.chmod(0o755)
        counted, ran = runner.count(program)
    return counted.total, ran.output


def test_a_program_becomes_faster_and_the_store_makes_it_again(
    project: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = "./bench input 60"
    assert _tune("--run", run, "--decide", "inline", "--growth", "100", "--json") == 0
    told = json.loads(capfd.readouterr().out)
    assert told["cycles"]["after"] < 0.9 * told["cycles"]["before"]
    assert told["text"]["after"] <= 2 * told["text"]["before"]
    assert told["stored"], told
    assert "work" in told["hot"]
    assert min(told["hot"].values()) >= 0.005
    assert 0.9 < told["own"] <= 1
    assert told["spent"]["compiles"] <= 6
    before, output = _run(run)
    assert before == told["cycles"]["before"]
    (line,) = told["apply"]
    subprocess.run(shlex.split(line), check=True, capture_output=True)
    assert _run(run) == (told["cycles"]["after"], output)
    assert {section.heading.path for section in read_store(project / "policybridge.decisions").sections} == {"work.c"}


@pytest.mark.usefixtures("project")
def test_text_stays_within_its_bound(capfd: pytest.CaptureFixture[str]) -> None:
    assert _tune("--run", "./bench input 1", "--growth", "0", "--json") == 0
    told = json.loads(capfd.readouterr().out)
    assert told["text"]["after"] <= told["text"]["before"]


_SHARED = """CC = clang-22
CFLAGS = -O2
bench: main.o libwork.so
\t$(CC) -o $@ main.o -L. -lwork '-Wl,-rpath,$(CURDIR)'
libwork.so: work.c
\t$(CC) -O2 -fPIC -shared -o $@ $<
script:
"""


def test_a_program_that_mostly_runs_a_shared_library_is_told_to_link_it_statically(
    project: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (project / "Makefile").write_text(_SHARED)
    assert _tune("--run", "./bench input 20") == 0
    said = capfd.readouterr().out
    assert "0 % of the cycles are in functions that can be tuned" in said
    assert "link those of the build statically" in said


@pytest.mark.parametrize(
    ("run", "words"),
    [
        ("./bench input fail", "under valgrind does not end well: it says nothing; it has to exit with 0"),
        ("./bench input pid", "prints something else in each run"),
        ("./bench input wait", "was ended after 3 seconds; valgrind takes some 50 times as long"),
        ("./script input", "which the build did not link: run a program that it links (bench), not a script"),
        ("./gone input", "the build left no program './gone'"),
    ],
)
def test_a_run_that_shows_nothing_is_an_error_with_a_cure(
    project: Path, capfd: pytest.CaptureFixture[str], run: str, words: str
) -> None:
    assert _tune("--run", run, "--seconds", "3") == 2
    assert words in capfd.readouterr().err
    assert not (project / "policybridge.decisions").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--objective", "cycles"], "give --run './bench input'"),
        (["--run", "./bench"], "--run is for --objective cycles"),
        (["--objective", "cycles", "--run", "./bench", "--lto", "full"], "leave out --lto"),
        (["--objective", "cycles", "--run", "./bench", "--linked"], "leave out --linked"),
        (["--objective", "cycles", "--run", "cat input | ./bench"], "--run has '|', and there is no shell"),
        (["--objective", "cycles", "--run", "N=1"], "--run names no program"),
    ],
)
def test_options_that_do_not_go_together_are_refused_before_the_build(
    options: list[str], words: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["autotune", *options, "--", "false"]) == 2
    assert words in capfd.readouterr().err


def test_a_build_whose_decisions_are_made_at_link_time_is_refused(
    project: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    linking = "bench: main.o work.o\n\t$(CC) -flto -fuse-ld=lld -o $@ $^\nscript:\n"
    (project / "Makefile").write_text(f"CC = clang-22\nCFLAGS = -O2 -flto\n{linking}")
    assert _tune("--run", "./bench input 1") == 2
    assert "have -flto, which leaves decisions to link time, and --objective cycles does not" in capfd.readouterr().err
    assert not (project / "policybridge.decisions").exists()


_BREAKS = """
case "$*" in *-policybridge-decisions=*/store*)
  for word do
    shift
    case "$word" in */work.o.bc) word={other};; esac
    set -- "$@" "$word"
  done
esac
"""
_CRASHES = 'case "$*" in *-policybridge-decisions=*/store*) kill -SEGV $$;; esac'


@pytest.mark.parametrize(
    ("extra", "words"),
    [(_BREAKS, "prints something else"), (_CRASHES, "crashed: signal 11")],
    ids=["program", "compiler"],
)
def test_decisions_that_break_the_program_or_the_compiler_are_not_kept(
    project: Path, capfd: pytest.CaptureFixture[str], extra: str, words: str
) -> None:
    other = project.parent / "other.bc"
    (project / "other.c").write_text(_WORK.replace("40503u", "40507u"))
    subprocess.run(["clang-22", "-O2", "-c", "-emit-llvm", "other.c", "-o", other], check=True)
    compiler = CountedCompiler.of(project.parent / "bin", "clang-22", extra=extra.format(other=other))
    assert _tune("--run", "./bench input 1", "--compiler", str(compiler.path), "--decide", "inline") == 0
    said = capfd.readouterr().out
    assert words in said
    assert "nothing was found that saves cycles" in said
    assert not (project / "policybridge.decisions").exists()


def test_a_search_goes_on_from_the_best_program_of_the_last_one(
    project: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ("--run", "./bench input 60", "--decide", "inline", "--growth", "100", "--json")
    assert _tune(*words) == 0
    first = json.loads(capfd.readouterr().out)
    assert first["stored"]
    assert not (project / "policybridge.decisions.work" / "speed").exists()
    (project / "policybridge.decisions").unlink()
    assert _tune(*words, "--budget", "2") == 0
    second = json.loads(capfd.readouterr().out)
    assert (second["cycles"], second["spent"]["compiles"]) == (first["cycles"], 2)
    # Another run has another search.
    assert _tune(*words, "--budget", "2", "--run", "./bench input 61") == 0
    assert json.loads(capfd.readouterr().out)["time"] is None


def test_an_interrupted_search_leaves_the_store_and_no_program(project: Path) -> None:
    marker = str(project / "marker")
    options = ("--objective", "cycles", "--budget", "6", "--decide", "inline", "--growth", "100", "--pairs", "1000")
    words = (*options, "--run", f"./bench input 60 {shlex.quote(marker)}", "--", "make", "-s", "-B", "bench", "script")
    process = subprocess.Popen(command("autotune", *words), stderr=subprocess.PIPE, text=True)
    kept = project / "policybridge.decisions.work" / "speed.best"
    while not kept.exists():
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 130, said
    assert "interrupted; the store is as it was; the same command goes on from the best program that was run" in said
    wait_until_gone(marker)
    assert not (project / "policybridge.decisions").exists()


def test_a_program_that_prints_something_else_outside_of_valgrind_is_not_kept(
    project: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert _tune("--run", "./bench input 60 alone", "--decide", "inline", "--growth", "100") == 2
    assert "prints something else in another run: nothing is confirmed or kept" in capfd.readouterr().err
    assert not (project / "policybridge.decisions").exists()


def _digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir() if path.is_file()}


def test_the_build_s_own_files_stay_as_the_build_left_them(project: Path) -> None:
    subprocess.run(["make", "-s", "-B", "bench", "script"], check=True)
    before = _digests(project)
    assert _tune("--run", "./bench input 1", "--budget", "3", "--decide", "inline") == 0
    after = _digests(project)
    after.pop("policybridge.decisions", None)
    # An archive has the time of its making.
    assert {name for name in before if before[name] != after[name]} <= {"libwork.a"}
    assert after.keys() == before.keys()

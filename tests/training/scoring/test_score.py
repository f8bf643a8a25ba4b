"""``policybridge score`` on corpora, with real compilers."""

import json
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from policybridge_client.cli import main
from policybridge_train.compiling.module import Program
from policybridge_train.corpus.description import Corpus
from tests.client.compilers import parameters, write_source
from tests.conftest import RunningServer, command, running_server
from tests.repositories import answering, write_python
from tests.training.corpora import write_corpus
from tests.training.ended import wait_until_gone


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    folder = tmp_path_factory.mktemp("sources")
    return {
        "one/a.c": write_source(folder, "a.c", 4).read_text(),
        "one/b.cpp": 'extern "C" int sink(int); inline int f(int x) { return sink(x) ^ sink(x + 1); }\n'
        "int g(int x) { return f(x) + f(x + 1) + f(x + 2) + f(x + 3); }\n",
        "two/a program.c": write_source(folder, "c.c", 3).read_text() + "int main(void) { return c1(3); }\n",
    }


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory, sources: Mapping[str, str]) -> Corpus:
    programs = [Program("bin/it", "two", "executable", ("two/a program.c",))]
    return write_corpus(tmp_path_factory.mktemp("a corpus"), sources, programs)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    repository = tmp_path_factory.mktemp("policies")
    write_python(repository, "echo", answering('observation["inlining_default"]'))
    write_python(repository, "never", answering("0"))
    write_python(repository, "failing", answering("observation['no such feature']"))
    with running_server(repository, tmp_path_factory.mktemp("s")) as running:
        yield running


def score(corpus: Corpus, tmp_path: Path, *words: str, status: int = 0) -> Any:
    """Run the command and give the JSON file that it wrote."""
    file = tmp_path / "scores.json"
    arguments = ["score", "--corpus", str(corpus.folder), "--cache", str(tmp_path / "cache"), "--json", str(file)]
    if "--compiler" not in words:
        arguments += ["--compiler", "zig"]
    assert main([*arguments, *words]) == status
    return json.loads(file.read_bytes()) if file.exists() else None


def test_flags_are_scored_by_object_and_linked(corpus: Corpus, tmp_path: Path) -> None:
    (found,) = score(corpus, tmp_path, "--candidate", "flag:-mllvm,-inline-threshold=1000")["comparisons"]
    modules = {row["module"]: row for row in found["modules"]}
    assert list(modules) == ["one/a.c", "one/b.cpp", "two/a program.c"]
    assert all(row["before"]["status"] == row["after"]["status"] == "ok" for row in modules.values())
    assert modules["one/a.c"]["after"]["text"] > modules["one/a.c"]["before"]["text"] > 0
    assert modules["one/a.c"]["before"]["sections"]
    assert modules["one/a.c"]["before"]["seconds"] > 0
    assert (modules["one/a.c"]["language"], modules["one/b.cpp"]["language"]) == ("c", "c++")
    programs = {(row["project"], row["program"]): row for row in found["programs"]}
    assert set(programs) == {("two", "bin/it"), ("one", "one")}
    linked, alone = programs["two", "bin/it"], modules["two/a program.c"]
    assert 0 < linked["before"]["exec"] < alone["before"]["exec"]


@pytest.mark.parametrize("name", ["zig", *parameters("clang-19", "clang-22")])
def test_a_policy_that_echoes_the_default_changes_exactly_nothing(
    sources: Mapping[str, str], server: RunningServer, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus = write_corpus(tmp_path / "corpus", sources, compiler=name)
    words = ["--candidate", "echo", "--server", server.socket, "--interactive", "--compiler", name]
    (found,) = score(corpus, tmp_path, *words)["comparisons"]
    assert found["way"] == "interactive"
    for row in found["modules"]:
        assert row["after"]["status"] == "ok"
        assert row["after"]["digest"] == row["before"]["digest"]
        assert row["after"]["seconds"] > 0
    assert all(row["before"] == row["after"] for row in found["programs"])
    assert "3 of 3 objects are identical" in capsys.readouterr().out


@pytest.mark.parametrize("name", parameters("clang-19"))
def test_where_llvms_own_decision_is_not_known_each_module_is_a_failed_row_with_this_reason(
    sources: Mapping[str, str], server: RunningServer, tmp_path: Path, name: str
) -> None:
    corpus = write_corpus(tmp_path / "corpus", sources, compiler=name, level="-O2")
    words = ["--candidate", "echo", "--server", server.socket, "--interactive", "--compiler", name]
    (found,) = score(corpus, tmp_path, *words, status=1)["comparisons"]
    assert len(found["modules"]) == len(sources)
    for row in found["modules"]:
        assert (row["before"]["status"], row["after"]["status"]) == ("ok", "failed")
        assert "inlining_default" in row["after"]["message"], row


def test_regressions_come_with_words_that_repeat_them_in_any_folder(
    corpus: Corpus, server: RunningServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = score(corpus, tmp_path, "--candidate", "never", "--server", server.grpc)["comparisons"][0]
    grown = [row for row in found["modules"] if row["after"]["text"] > row["before"]["text"]]
    assert grown
    told = capsys.readouterr().out
    for row in grown:
        assert row["repeat"] in told
    other = tmp_path / "elsewhere"
    other.mkdir()
    said = subprocess.run(grown[0]["repeat"], shell=True, cwd=other, capture_output=True, text=True, check=True).stdout
    sizes = [int(line.split()[0]) for line in said.splitlines()[1:]]
    assert sizes == [grown[0]["before"]["text"], grown[0]["after"]["text"]]
    assert not list(other.iterdir())
    programs = [row for row in found["programs"] if row["repeat"]]
    again = subprocess.run(programs[0]["repeat"], shell=True, cwd=other, capture_output=True, text=True, check=True)
    assert f"{programs[0]['before']['text']:,} → {programs[0]['after']['text']:,}" in again.stdout


def test_a_module_or_a_program_can_be_scored_alone(corpus: Corpus, tmp_path: Path) -> None:
    (one,) = score(corpus, tmp_path, "--candidate", "default", "--module", "*.cpp")["comparisons"]
    assert [row["module"] for row in one["modules"]] == ["one/b.cpp"]
    assert one["programs"] == []
    (two,) = score(corpus, tmp_path, "--candidate", "default", "--program", "two/*")["comparisons"]
    assert [row["module"] for row in two["modules"]] == ["two/a program.c"]
    assert [row["program"] for row in two["programs"]] == ["bin/it"]
    (both,) = score(corpus, tmp_path, "--candidate", "default", "--project", "two")["comparisons"]
    assert {row["module"].partition("/")[0] for row in both["modules"]} == {"two"}


@pytest.mark.parametrize(
    ("words", "modules", "failures"),
    [
        (("--program", "p/*"), {"p/a.c"}, set()),
        (("--project", "p"), {"p/a.c"}, {"p/broken.c"}),
        (("--module", "q/*"), {"q/a.c"}, {"q/broken.c"}),
        ((), {"p/a.c", "q/a.c"}, {"p/broken.c", "q/broken.c"}),
    ],
)
def test_a_filter_leaves_out_the_failures_of_other_packages_too(
    tmp_path: Path, words: tuple[str, ...], modules: set[str], failures: set[str]
) -> None:
    text = "int sink(int);\nstatic int f(int x) { return sink(x); }\nint g(int x) { return f(x) + f(x + 1); }\n"
    made = write_corpus(tmp_path / "corpus", {"p/a.c": text, "q/a.c": text})
    why = dict.fromkeys(("p/broken.c", "q/broken.c"), "it does not compile")
    corpus = Corpus(made.folder, made.modules, [Program("tool", "p", "archive", ("p/a.c",))], why)
    corpus.write()
    found = score(corpus, tmp_path, "--candidate", "default", *words)
    assert {row["module"] for row in found["comparisons"][0]["modules"]} == modules
    assert found["excluded"].keys() == failures


_COMPILER = """#!/bin/sh
case "$*" in
*--version*) echo "clang version 22.1.8" ;;
*b.cpp*) kill -SEGV $$ ;;
*"a program"*) sleep 600 ;;
*) exec {real} "$@" ;;
esac
"""


def test_crashes_and_time_outs_are_rows_and_not_ends(
    corpus: Corpus, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    compiler = tmp_path / "my clang"
    compiler.write_text(_COMPILER.format(real=shlex.join([sys.executable, "-m", "ziglang", "clang"])))
    compiler.chmod(0o755)
    words = ["--candidate", "flag:-mllvm,-inline-threshold=1000", "--compiler", str(compiler), "--seconds", "12"]
    (found,) = score(corpus, tmp_path, *words, "--jobs", "3")["comparisons"]
    assert [row["before"]["status"] for row in found["modules"]] == ["ok", "crashed", "timeout"]
    assert "signal 11" in found["modules"][1]["before"]["message"]
    archive = next(row for row in found["programs"] if row["program"] == "one")
    assert (archive["missing"], archive["modules"]) == (["one/b.cpp"], 1)
    assert archive["after"]["text"] > archive["before"]["text"]
    lost = next(row for row in found["programs"] if row["program"] == "bin/it")
    assert "before" not in lost or lost["before"] is None
    told = capsys.readouterr().out
    assert "one/b.cpp" in told
    assert "it was ended after 12 seconds" in told


def test_a_compiler_that_wants_more_memory_than_it_may_have_is_a_row(corpus: Corpus, tmp_path: Path) -> None:
    words = ["--candidate", "default", "--module", "one/a.c"]
    (found,) = score(corpus, tmp_path, *words, "--memory", "16", "--no-cache", status=1)["comparisons"]
    assert found["modules"][0]["before"]["status"] in {"failed", "crashed"}
    (found,) = score(corpus, tmp_path, *words, "--memory", "4096")["comparisons"]
    assert found["modules"][0]["before"]["status"] == "ok"


def test_a_policy_without_an_answer_is_a_failure_and_no_score(
    corpus: Corpus, server: RunningServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--candidate", "failing", "--candidate", "nobody@3", "--server", server.socket, "--interactive"]
    scores = score(corpus, tmp_path, *words, status=1)
    for comparison in scores["comparisons"]:
        assert {row["after"]["status"] for row in comparison["modules"]} == {"failed"}
        assert {row["before"]["status"] for row in comparison["modules"]} == {"ok"}
    assert "no such feature" in scores["comparisons"][0]["modules"][0]["after"]["message"]
    assert "nobody" in capsys.readouterr().out


def test_a_broken_module_is_a_row(sources: Mapping[str, str], tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus", {**sources, "one/c.c": "int c;"})
    corpus.modules[0].bitcode.write_bytes(b"no bitcode")
    corpus.modules[1].bitcode.unlink()
    (found,) = score(corpus, tmp_path, "--candidate", "flag:-mllvm,-inline-threshold=9")["comparisons"]
    assert [row["before"]["status"] for row in found["modules"]] == ["failed", "failed", "ok", "ok"]
    assert all(row["before"]["message"] for row in found["modules"][:2])


def test_the_baseline_is_compiled_once_and_broken_files_of_the_cache_again(corpus: Corpus, tmp_path: Path) -> None:
    words = ["--candidate", "flag:-mllvm,-inline-threshold=9"]
    first = score(corpus, tmp_path, *words)["comparisons"][0]
    assert not any(row["before"]["cached"] for row in first["modules"])
    second = score(corpus, tmp_path, *words)["comparisons"][0]
    assert all(row["before"]["cached"] and row["after"]["cached"] for row in second["modules"])
    for file in (tmp_path / "cache").rglob("*.o"):
        file.write_bytes(b"broken")
    third = score(corpus, tmp_path, *words)["comparisons"][0]
    assert [row["before"]["cached"] for row in third["modules"]] == [False] * 3
    for one, two, three in zip(first["modules"], second["modules"], third["modules"], strict=True):
        assert one["before"]["text"] == two["before"]["text"] == three["before"]["text"]
    assert second["programs"] == third["programs"] == first["programs"]
    none = score(corpus, tmp_path, *words, "--no-cache")["comparisons"][0]
    assert not any(row["before"]["cached"] for row in none["modules"])


def test_each_candidate_is_compared_with_each_baseline_and_rows_are_repeated_with_theirs(
    corpus: Corpus, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    constants = "flag:-mllvm,-inline-threshold=9"
    words = ["--baseline", "default", "--baseline", constants, "--candidate", constants]
    words += ["--candidate", "flag:-mllvm,-inline-threshold=1000"]
    found = score(corpus, tmp_path, *words)["comparisons"]
    by_names = {(each["baseline"], each["candidate"]): each for each in found}
    assert len(by_names) == len(found) == 4
    assert all(row["before"]["digest"] == row["after"]["digest"] for row in by_names[constants, constants]["modules"])
    for (baseline, candidate), each in by_names.items():
        own = score(corpus, tmp_path, "--baseline", baseline, "--candidate", candidate)["comparisons"][0]
        assert [row["before"]["text"] for row in each["modules"]] == [row["before"]["text"] for row in own["modules"]]
        assert each["programs"] == own["programs"]
    capsys.readouterr()
    programs = by_names[constants, words[-1]]["programs"]
    grown = [row for row in programs if row["after"]["text"] > row["before"]["text"]]
    again = subprocess.run(grown[0]["repeat"], shell=True, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert f"{grown[0]['before']['text']:,} → {grown[0]['after']['text']:,}" in again.stdout


def test_the_page_is_one_file_and_shows_names_as_they_are(tmp_path: Path) -> None:
    name = "p/<script>alert(1)</script>[bold].c"
    corpus = write_corpus(tmp_path / "corpus", {name: "int sink(int); int f(int x) { return sink(x); }\n"})
    page = tmp_path / "page.html"
    score(corpus, tmp_path, "--candidate", "flag:-mllvm,-inline-threshold=9", "--html", str(page))
    text = page.read_text()
    assert "<script>alert" not in text
    assert "script" in text
    assert "Plotly.newPlot" in text
    assert 'src="http' not in text


def test_names_that_are_no_unicode_or_would_move_a_cursor_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "p/it's \udcff\x1b[2J.c"
    function = 'int f(int) __asm__("f \\377"); int sink(int);\nint f(int x) { return sink(x); }\n'
    local = "static int g(int x) { return sink(x) * sink(x + 1) - sink(3); } int h(int x) { return g(x) + g(x + 1); }\n"
    corpus = write_corpus(tmp_path / "corpus", {name: function + local})
    words = ["--candidate", "flag:-mllvm,-inline-threshold=1000", "--html", str(tmp_path / "page.html")]
    row = score(corpus, tmp_path, *words)["comparisons"][0]["modules"][0]
    assert row["module"] == name
    assert "\x1b" not in capsys.readouterr().out
    assert row["after"]["text"] > row["before"]["text"]
    done = subprocess.run(["bash", "-c", row["repeat"]], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert str(row["after"]["text"]) in done.stdout, done.stderr
    assert score(corpus, tmp_path, *words)["comparisons"][0]["modules"][0]["before"]["cached"]


def test_the_weighted_cost_of_spills_is_scored_for_tasks_of_the_register_allocator(
    sources: Mapping[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus = write_corpus(tmp_path / "corpus", sources, level="-O2")
    words = ["--candidate", "flag:-mllvm,-regalloc=basic", "--task", "evict"]
    (found,) = score(corpus, tmp_path, *words)["comparisons"]
    assert all(row["before"]["spills"] >= 0 for row in found["modules"])
    assert "spill cost" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--candidate", "inliner"], "--server"),
        (["--candidate", "default", "--module", "nothing"], "no module"),
        (["--candidate", "default", "--compiler", "no-such-clang"], "no compiler"),
        (["--candidate", "default", "--compiler", "/bin/true"], "is no clang"),
    ],
)
def test_a_wrong_command_line_says_what_would_be_right(
    corpus: Corpus, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    score(corpus, tmp_path, *words, status=2)
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("name", ["no folder/scores.html", "."])
def test_a_page_that_cannot_be_written_is_refused_before_anything_is_compiled(
    corpus: Corpus, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    score(corpus, tmp_path, "--candidate", "default", "--html", str(tmp_path / name), status=2)
    assert f"{tmp_path / name} cannot be written: name a file in a folder that is there" in capsys.readouterr().err
    assert not (tmp_path / "cache").exists()


def test_a_signal_ends_all_compilers(corpus: Corpus, tmp_path: Path) -> None:
    compiler = tmp_path / "clang-slow"
    marker = tmp_path / "started"
    compiler.write_text(
        f'#!/bin/sh\ncase "$*" in *--version*) echo "clang version 22.1.8" ;; *) touch {marker}; sleep 600 ;; esac\n'
    )
    compiler.chmod(0o755)
    words = ["score", "--corpus", corpus.folder, "--candidate", "default", "--compiler", compiler, "--no-cache"]
    process = subprocess.Popen(command(*words, "--jobs", 2), stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not marker.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 128 + signal.SIGTERM
    wait_until_gone(compiler)
    assert marker.exists()

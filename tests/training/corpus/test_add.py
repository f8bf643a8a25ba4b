"""``policybridge corpus add``: from compile commands, embedded bitcode, ThinLTO's files and other corpora."""

import json
import os
import resource
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest

from policybridge_core.errors import PreconditionError
from policybridge_train.compiling.compilation import compile_command
from policybridge_train.compiling.compiler import Compiler, newest_compiler
from policybridge_train.compiling.limits import Limits
from policybridge_train.compiling.module import Module
from policybridge_train.corpus.description import Corpus
from policybridge_train.corpus.writing import CorpusWriter
from policybridge_train.processes.process import compile_by
from tests.training.corpora import write_corpus
from tests.training.corpus.projects import HELPER, MAIN, corpus_command, record, small_project, write_project

_ZIG: Final = (sys.executable, "-m", "ziglang")


def _add(folder: Path, *files: object) -> tuple[Corpus, str]:
    ended = corpus_command("add", "--output", "corpus", *files, cwd=folder)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return Corpus.open(folder / "corpus"), ended.stdout


def test_compile_commands_in_both_styles_are_added(tmp_path: Path) -> None:
    write_project(tmp_path / "p", {"src/main.c": MAIN, "h x.cc": "int helper(int v) { return v; }"})
    rows = [
        {"directory": "src", "file": "main.c", "command": "gcc -DTEXT='\"a b\"' -c main.c -o ../main.o"},
        {"directory": str(tmp_path / "p"), "file": "h x.cc", "arguments": ["c++", "-O3", "-c", "h x.cc"]},
        {"directory": str(tmp_path / "p"), "file": "gone.c", "arguments": ["cc", "-c", "gone.c"]},
    ]
    (tmp_path / "p" / "compile_commands.json").write_text(json.dumps(rows))

    corpus, said = _add(tmp_path, "p/compile_commands.json")

    assert [(module.name, module.language) for module in corpus.modules] == [("p/h x.o", "c++"), ("p/main.o", "c")]
    assert ["gone.c" in why for why in corpus.failures.values()] == [True]
    assert "gone.c is not there" in said


def test_response_files_in_compile_commands_are_read(tmp_path: Path) -> None:
    files = {"h.c": "#include <one.h>\nint h(void) { return ONE; }", "include/one.h": "#define ONE DEFINED"}
    write_project(tmp_path / "p", files | {"outer.rsp": "-DDEFINED=1 @inner.rsp", "inner.rsp": "-Iinclude @inner.rsp"})
    row = {"directory": ".", "file": "h.c", "command": "gcc @outer.rsp -c h.c"}
    (tmp_path / "p" / "compile_commands.json").write_text(json.dumps([row]))

    corpus, said = _add(tmp_path, "p/compile_commands.json")

    assert [module.source for module in corpus.modules] == ["h.c"], said
    assert not corpus.failures


@pytest.mark.parametrize(
    "option",
    [
        *("-MJ entry.json", "-MJentry.json", "--serialize-diagnostics said.dia", "-v", "-B /nowhere", "-F folder"),
        *("-cxx-isystem folder", "--define-macro OTHER", "--define-macro=OTHER", "--include-directory folder"),
    ],
)
def test_an_option_takes_no_flag_behind_it_for_its_value(option: str, tmp_path: Path) -> None:
    write_project(tmp_path / "p", {"h.c": HELPER})
    row = {"directory": ".", "file": "h.c", "command": f"clang -O2 -DNAME=1 {option} -c h.c --output=h.obj"}
    (tmp_path / "p" / "compile_commands.json").write_text(json.dumps([row]))

    corpus, _ = _add(tmp_path, "p/compile_commands.json")

    assert [module.name for module in corpus.modules] == ["p/h.obj"]
    assert {"-Oz", "NAME=1"} <= set(corpus.modules[0].arguments)
    assert not {"-g0", "-O2"} & set(corpus.modules[0].arguments)
    assert {path.name for path in (tmp_path / "p").iterdir()} == {"h.c", "compile_commands.json"}


@pytest.mark.parametrize("text", ["{", "{}", '[{"file": "a.c"}]', '[{"directory": "/", "command": "cc \'"}]', "[3]"])
def test_a_broken_compilation_database_is_a_clear_error(text: str, tmp_path: Path) -> None:
    (tmp_path / "compile_commands.json").write_text(text)

    ended = corpus_command("add", "--output", "corpus", "compile_commands.json", cwd=tmp_path)

    assert ended.returncode == 2
    assert "compile_commands.json" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_objects_with_embedded_bitcode_are_added_as_mlgo_utils_reads_them(tmp_path: Path) -> None:
    write_project(tmp_path / "p", {"h.c": HELPER, "sub/main.c": MAIN, "plain.c": "int plain;"})
    compiler = newest_compiler()
    for name in ("h", "sub/main"):
        command = [*compiler.start, "-Oz", "-Xclang", "-fembed-bitcode=all", "-c", f"{name}.c", "-o", f"{name}.o"]
        subprocess.run(command, cwd=tmp_path / "p", check=True)
    subprocess.run([*compiler.start, "-c", "plain.c"], cwd=tmp_path / "p", check=True)

    corpus, said = _add(tmp_path, "p")

    assert [module.name for module in corpus.modules] == ["p/h.o", "p/sub/main.o"]
    assert corpus.modules[0].arguments[0] == "-cc1"
    assert "-Oz" in corpus.modules[0].arguments
    assert "plain.o: " in said
    assert "-fembed-bitcode=all" in corpus.failures["p/plain.o"]
    assert compile_by(compile_command(compiler, corpus.modules[0], tmp_path / "out.o"), Limits()).ok


def test_truncated_and_foreign_objects_are_failures(tmp_path: Path) -> None:
    write_project(tmp_path / "p", {"h.c": HELPER, "text.o": "no object", "empty.o": ""})
    compiler = newest_compiler()
    command = [*compiler.start, "-Xclang", "-fembed-bitcode=all", "-c", "h.c"]
    subprocess.run(command, cwd=tmp_path / "p", check=True)
    whole = (tmp_path / "p" / "h.o").read_bytes()
    for size in (16, 70, 200, len(whole) - 200, len(whole) - 1):
        (tmp_path / "p" / f"cut{size}.o").write_bytes(whole[:size])

    corpus, _ = _add(tmp_path, "p")

    assert [module.name for module in corpus.modules] == ["p/h.o"]
    assert len(corpus.failures) == 7


def test_the_temporary_files_of_thinlto_are_added_with_their_index(tmp_path: Path) -> None:
    write_project(tmp_path / "p", {"h.c": HELPER, "main.c": MAIN})
    compile_ = [*_ZIG, "clang", "-O2", "-flto=thin", "-target", "x86_64-linux-gnu", "-c", "h.c", "main.c"]
    subprocess.run(compile_, cwd=tmp_path / "p", check=True)
    index = ["--save-temps", "--thinlto-emit-index-files"]
    link = [*_ZIG, "ld.lld", *index, "h.o", "main.o", "-o", "prog.so", "--shared"]
    subprocess.run(link, cwd=tmp_path / "p", check=True)

    corpus, _ = _add(tmp_path, "p")

    assert [module.name for module in corpus.modules] == ["p/h.o", "p/main.o"]
    assert corpus.thinlto
    assert json.loads((tmp_path / "corpus" / "corpus_description.json").read_text())["has_thinlto"] is True
    assert all(module.index.is_file() for module in corpus.modules)
    assert compile_by(compile_command(Compiler.find("zig"), corpus.modules[0], tmp_path / "out.o"), Limits()).ok


def test_modules_of_thinlto_and_others_do_not_go_into_one_corpus(tmp_path: Path) -> None:
    record(small_project(tmp_path / "small"), tmp_path / "corpus", "make")
    for name in ("x.o.3.import.bc", "x.o.thinlto.bc"):
        (tmp_path / name).write_bytes((tmp_path / "corpus" / "small" / "h.o.bc").read_bytes())

    ended = corpus_command("add", "--output", "corpus", "x.o.3.import.bc", cwd=tmp_path)

    assert ended.returncode == 2
    assert "ThinLTO" in ended.stderr
    assert not Corpus.open(tmp_path / "corpus").thinlto


def test_another_corpus_is_added_once_with_its_programs(tmp_path: Path) -> None:
    first = record(small_project(tmp_path / "small"), tmp_path / "first", "make")

    corpus, _ = _add(tmp_path, "first")
    assert [module.digest for module in corpus.modules] == [module.digest for module in first.modules]
    assert list(corpus.programs) == list(first.programs)

    again, said = _add(tmp_path, "first/corpus_description.json")
    assert len(again.modules) == len(first.modules)
    assert "3 modules" in said


def test_what_two_processes_add_to_one_corpus_at_a_time_is_all_in_it(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_project(tmp_path / name, {f"{name}.c": f"int {name};"})
    # Each build ends when the other one has begun: both processes have seen the corpus as it was before.
    wait = "touch ../{}.began; until [ -e ../{}.began ]; do sleep 0.05; done; gcc -c *.c"
    builds = [("one", wait.format("one", "two")), ("two", wait.format("two", "one"))]
    with ThreadPoolExecutor() as executor:
        ended = list(
            executor.map(
                lambda build: corpus_command(
                    "record", "--output", tmp_path / "corpus", "--", "sh", "-c", build[1], cwd=tmp_path / build[0]
                ),
                builds,
            )
        )

    assert [one.returncode for one in ended] == [0, 0], ended
    corpus = Corpus.open(tmp_path / "corpus")
    assert [module.name for module in corpus.modules] == ["one/one.o", "two/two.o"]


def test_a_file_in_the_place_of_a_corpus_is_a_clear_error(tmp_path: Path) -> None:
    write_project(tmp_path, {"h.c": HELPER, "corpus": "a file"})

    ended = corpus_command("record", "--output", "corpus", "--", "gcc", "-c", "h.c", cwd=tmp_path)

    assert ended.returncode == 2
    assert "corpus is no folder: choose another --output" in ended.stderr
    assert not (tmp_path / "h.o").exists()


def test_a_compiler_that_is_ended_leaves_no_file_in_the_corpus(tmp_path: Path) -> None:
    loop = "constexpr int f() { int s = 0; for (int i = 0; i < 2000000000; i++) s ^= i; return s; }"
    write_project(tmp_path / "p", {"slow.cc": f"{loop}\nconstexpr int slow = f();\nint g() {{ return slow; }}\n"})
    row = {"directory": ".", "file": "slow.cc", "command": "clang++ -fconstexpr-steps=2147483647 -c slow.cc"}
    (tmp_path / "p" / "compile_commands.json").write_text(json.dumps([row]))

    ended = corpus_command("add", "--seconds", "2", "--output", "corpus", "p/compile_commands.json", cwd=tmp_path)

    assert "slow.o: timeout" in ended.stdout, ended.stdout + ended.stderr
    files = {path.name for path in (tmp_path / "corpus").rglob("*") if path.is_file()}
    assert files == {"corpus_description.json", "policybridge_corpus.json"}


def test_a_description_that_cannot_be_written_is_named_and_the_old_one_stands(tmp_path: Path) -> None:
    corpus = Corpus(tmp_path, [Module("p/m", tmp_path)])
    corpus.write()
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    # As on a full disk, writing fails in the middle.
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, hard))
    try:
        with pytest.raises(PreconditionError, match=r"policybridge_corpus\.json cannot be written: File too large"):
            corpus.write()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_folder_without_anything_to_add_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()

    ended = corpus_command("add", "--output", "corpus", "empty", cwd=tmp_path)

    assert ended.returncode == 2
    assert "holds neither objects" in ended.stderr


def test_a_corpus_is_shown_as_a_table(tmp_path: Path) -> None:
    record(small_project(tmp_path / "small"), tmp_path / "corpus", "make")

    ended = corpus_command("show", "corpus", cwd=tmp_path, environment={"COLUMNS": "120"})

    assert ended.returncode == 0
    assert "small" in ended.stdout
    assert "1 projects" in ended.stdout


def test_a_folder_that_holds_no_corpus_is_a_clear_error(tmp_path: Path) -> None:
    ended = corpus_command("show", os.curdir, cwd=tmp_path)

    assert ended.returncode == 2
    assert "holds no corpus" in ended.stderr


def test_a_module_s_profile_comes_along_and_a_path_from_elsewhere_is_no_profile(tmp_path: Path) -> None:
    profile = tmp_path / "profile"
    profile.write_text("one:1000:10\n")
    first = write_corpus(tmp_path / "first", {"p/a.c": "int a;", "p/b.c": "int b;"})
    named = CorpusWriter(first.folder).keep_profile(profile)
    for module, file in zip(first.modules, (named, str(profile)), strict=True):
        words = (*module.arguments, "-fprofile-instrument-use=llvm", f"-fprofile-instrument-use-path={file}")
        (first.folder / f"{module.name}.cmd").write_text("".join(f"{word}\0" for word in words))

    corpus, _ = _add(tmp_path, "first")

    own, foreign = corpus.modules
    assert own.profile == corpus.folder / named
    assert own.profile.read_text() == profile.read_text()
    assert own.backend_arguments[-2:] == [
        "-fprofile-instrument-use=llvm",
        f"-fprofile-instrument-use-path={own.profile}",
    ]
    assert foreign.profile is None
    assert not [word for word in foreign.backend_arguments if "profile" in word]

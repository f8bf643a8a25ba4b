"""``policybridge corpus record``: any build command becomes a corpus."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from policybridge_train.compiling.compilation import compile_command
from policybridge_train.compiling.compiler import newest_compiler
from policybridge_train.compiling.limits import Limits
from policybridge_train.corpus.building import record as record_build
from policybridge_train.corpus.description import Corpus
from policybridge_train.objects.elf import ObjectFile
from policybridge_train.processes.process import compile_by
from tests.interrupts import interrupted_unnoticed
from tests.native.llvm.plugins import need
from tests.training.corpus.projects import (
    HELPER,
    MAIN,
    SECONDS,
    command,
    corpus_command,
    program_of,
    record,
    small_project,
    write_project,
)


def test_modules_and_programs_of_a_parallel_make_are_recorded(tmp_path: Path) -> None:
    corpus = record(small_project(tmp_path / "small"), tmp_path / "corpus", "make", "-j4")

    assert [module.name for module in corpus.modules] == ["small/h.o", "small/main.o", "small/u.o"]
    assert [module.source for module in corpus.modules] == ["h.c", "main.c", "u.c"]
    assert {(module.project, module.language) for module in corpus.modules} == {("small", "c")}
    # Of the static library, the program takes the one object that it needs; ld -r takes both.
    assert program_of(corpus, "prog") == ("executable", ("main.o", "h.o"))
    assert program_of(corpus, "libx.a") == ("archive", ("h.o", "u.o"))
    assert program_of(corpus, "lib.so") == ("shared", ("h.o", "u.o"))
    assert not corpus.failures


def test_a_recorded_module_compiles_to_the_object_of_its_source(tmp_path: Path) -> None:
    corpus = record(small_project(tmp_path / "small"), tmp_path / "corpus", "make")
    compiler = newest_compiler()
    module = next(module for module in corpus.modules if module.source == "h.c")

    assert compile_by(compile_command(compiler, module, tmp_path / "module.o"), Limits()).ok
    command = [*compiler.start, "-w", "-Oz", "-c", "h.c", "-o", str(tmp_path / "source.o")]
    subprocess.run(command, cwd=tmp_path / "small", check=True)
    assert _text(tmp_path / "module.o") == _text(tmp_path / "source.o")


def test_a_build_keeps_its_exit_status_and_its_output(tmp_path: Path) -> None:
    write_project(tmp_path, {"good.c": HELPER, "bad.c": "int x"})
    build = "gcc -c good.c && echo said && gcc -c bad.c; exit 7"

    ended = corpus_command("record", "--output", "corpus", "--", "sh", "-c", build, cwd=tmp_path)

    assert ended.returncode == 7
    assert "said" in ended.stdout
    assert "bad.c:1" in ended.stderr
    assert "1 modules, 0 programs, 1 failures" in ended.stdout
    assert "bad.o: failed: bad.c:1:6: error" in ended.stdout


def test_the_build_s_own_level_is_kept_on_request(tmp_path: Path) -> None:
    write_project(tmp_path, {"h.c": HELPER})

    own = record(tmp_path, tmp_path / "own", "gcc", "-O3", "-c", "h.c", options=["--level", "own"])
    small = record(tmp_path, tmp_path / "small", "gcc", "-O3", "-c", "h.c")

    assert "-O3" in own.modules[0].arguments
    assert "-Oz" in small.modules[0].arguments
    assert "-O3" not in small.modules[0].arguments


@pytest.mark.parametrize(("options", "lines"), [([], False), (["--debug-info"], True)])
def test_tables_of_lines_are_kept_on_request_and_no_other_information_for_debuggers(
    tmp_path: Path, options: list[str], lines: bool
) -> None:
    write_project(tmp_path, {"h.c": HELPER})

    corpus = record(tmp_path, tmp_path / "corpus", "gcc", "-g3", "-c", "h.c", options=options)

    assert compile_by(compile_command(newest_compiler(), corpus.modules[0], tmp_path / "module.o"), Limits()).ok
    sections = ObjectFile.read(tmp_path / "module.o").section_names
    assert (".debug_line" in sections) == lines


def test_flags_that_only_gcc_knows_are_left_out(tmp_path: Path) -> None:
    write_project(tmp_path, {"h.c": HELPER})
    flags = ("-fno-gcse", "-fipa-pta", "--param", "ssp-buffer-size=4", "-Wno-stringop-overflow", "-fno-tree-pre")

    corpus = record(tmp_path, tmp_path / "corpus", "gcc", *flags, "-DKEPT=1", "-c", "h.c")

    assert not corpus.failures
    assert "KEPT=1" in " ".join(corpus.modules[0].arguments)


def test_paths_with_spaces_quotes_and_odd_bytes_are_recorded(tmp_path: Path) -> None:
    project = tmp_path / 'a "b" $c'
    write_project(project, {"x y.c": HELPER})
    odd = os.fsdecode(b"odd\xff\n.c")
    (project / odd).write_text("int odd;")

    corpus = record(project, tmp_path / "corpus", "sh", "-c", f"gcc -c 'x y.c' && gcc -c {shlex.quote(odd)} -o odd.o")

    assert {module.source for module in corpus.modules} == {"x y.c", odd}
    assert all(module.bitcode.is_file() for module in corpus.modules)


def test_a_response_file_that_is_removed_at_once_is_recorded(tmp_path: Path) -> None:
    write_project(tmp_path, {"main.c": MAIN, "h.c": HELPER})
    script = """echo "-DONE=1 -c main.c h.c" > c.rsp && gcc @c.rsp && rm c.rsp
    echo main.o h.o > l.rsp && gcc -o prog @l.rsp && rm l.rsp"""

    corpus = record(tmp_path, tmp_path / "corpus", "sh", "-c", script)

    assert program_of(corpus, "prog") == ("executable", ("main.o", "h.o"))


def test_response_files_that_name_others_are_recorded(tmp_path: Path) -> None:
    write_project(tmp_path, {"h.c": "int h(void) { return ONE; }", "outer": "@inner -c h.c", "inner": "-DONE=1"})

    corpus = record(tmp_path, tmp_path / "corpus", "gcc", "@outer")

    assert [module.source for module in corpus.modules] == ["h.c"]
    assert not corpus.failures


@pytest.mark.parametrize(
    "option", ["-include all.h", "-include-pch all.h.pch", "-Xclang -include-pch -Xclang all.h.pch"]
)
def test_a_header_that_is_precompiled_at_another_level_is_included_as_text(option: str, tmp_path: Path) -> None:
    write_project(
        tmp_path, {"all.h": "static int helper(int v) { return 3 * v; }", "h.c": "int h(void) { return helper(1); }"}
    )
    clang = shlex.join(newest_compiler().start)
    script = f"{clang} -O2 -x c-header all.h -o all.h.pch && {clang} -O2 {option} -c h.c"

    corpus = record(tmp_path, tmp_path / "corpus", "sh", "-c", script)

    assert [module.source for module in corpus.modules] == ["h.c"], corpus.failures
    assert "-Oz" in corpus.modules[0].arguments


@pytest.mark.parametrize("option", ["", "-fmodule-output", "-x c++-module -fmodule-output=two.pcm"])
def test_a_module_of_cxx20_is_recorded_and_its_interface_stays_as_it_was(option: str, tmp_path: Path) -> None:
    clang = need("clang++-22")
    files = {"two.cppm": "export module two;\nexport int two() { return 2; }\n"}
    write_project(tmp_path, files | {"main.cpp": "import two;\nint main() { return two(); }\n"})
    script = f"""set -e
    {clang} -std=c++20 --precompile two.cppm -o two.pcm && {clang} -std=c++20 {option} -c two.cppm -o two.o
    {clang} -std=c++20 -fprebuilt-module-path=. -c main.cpp && {clang} main.o two.o -o prog && cp two.pcm kept"""

    corpus = record(tmp_path, tmp_path / "corpus", "sh", "-c", script, options=["--compiler", "clang-22"])

    assert program_of(corpus, "prog") == ("executable", ("main.o", "two.o"))
    assert (tmp_path / "two.pcm").read_bytes() == (tmp_path / "kept").read_bytes()
    assert not (tmp_path / "module.pcm").exists()


def test_a_module_of_cxx20_that_is_compiled_from_its_precompiled_form_is_recorded_once(tmp_path: Path) -> None:
    clang = need("clang++-22")
    files = {"two.cppm": "export module two;\nexport int two() { return 2; }\n"}
    write_project(tmp_path, files | {"main.cpp": "import two;\nint main() { return two(); }\n"})
    script = f"""set -e
    {clang} -std=c++20 -Oz --precompile two.cppm -o two.pcm && {clang} -std=c++20 -Oz -c two.pcm -o two.o
    {clang} -std=c++20 -Oz -fprebuilt-module-path=. -c main.cpp && {clang} main.o two.o -o prog"""

    corpus = record(tmp_path, tmp_path / "corpus", "sh", "-c", script, options=["--compiler", "clang-22"])

    assert program_of(corpus, "prog") == ("executable", ("main.o", "two.o")), corpus.failures
    assert {(module.source, module.language) for module in corpus.modules} == {("main.cpp", "c++"), ("two.pcm", "c++")}


@pytest.mark.parametrize("option", ["--analyze", "-emit-ast", "-c -emit-interface-stubs"])
def test_a_command_that_makes_no_code_of_a_source_is_no_module(option: str, tmp_path: Path) -> None:
    clang = need("clang-22")
    write_project(tmp_path, {"h.c": HELPER, "n.c": "int n(void) { return 1; }"})
    script = f"{clang} -Oz {option} n.c -o n.made && {clang} -Oz -c h.c"

    corpus = record(tmp_path, tmp_path / "corpus", "sh", "-c", script, options=["--compiler", "clang-22"])

    assert [module.source for module in corpus.modules] == ["h.c"]
    assert not corpus.failures


def test_a_source_that_another_assembler_assembles_is_recorded_as_a_module(tmp_path: Path) -> None:
    clang = need("clang-22")
    write_project(tmp_path, {"h.c": HELPER})

    corpus = record(tmp_path, tmp_path / "corpus", clang, "-Oz", "-fno-integrated-as", "-c", "h.c")

    (module,) = corpus.modules
    assert module.bitcode.read_bytes()[:2] == b"BC"


def test_a_program_that_is_compiled_and_linked_at_once_has_its_sources_as_modules(tmp_path: Path) -> None:
    write_project(tmp_path, {"main.c": MAIN, "h.c": HELPER})

    corpus = record(tmp_path, tmp_path / "corpus", "sh", "-c", "gcc main.c h.c -o prog")

    assert program_of(corpus, "prog") == ("executable", ("main.c", "h.c"))


def test_a_trial_of_configure_is_no_module(tmp_path: Path) -> None:
    write_project(tmp_path, {"h.c": HELPER, "conftest.c": MAIN})

    script = "gcc -c conftest.c; gcc -c h.c; cp h.c t.c; gcc -c t.c -DT; rm t.c"

    corpus = record(tmp_path, tmp_path / "corpus", "sh", "-c", script)

    assert [module.source for module in corpus.modules] == ["h.c"]


def test_a_generated_source_that_stays_is_a_module(tmp_path: Path) -> None:
    corpus = record(tmp_path, tmp_path / "corpus", "sh", "-c", "echo 'int made;' > made.c; gcc -c made.c")

    assert [module.source for module in corpus.modules] == ["made.c"]


_REMOVING = "mkdir -p made/here && cd made/here && {} && cc -Oz -I../../include -c {} -o m.o && rm -r ../../made"
"""Builds as pip does: in a folder that it removes."""


def _removing(folder: Path, before: str, source: str) -> "subprocess.CompletedProcess[str]":
    write_project(
        folder, {"main.c": '#include "it.h"\nint main(void) { return IT; }\n', "include/it.h": "#define IT 3\n"}
    )
    build = _REMOVING.format(before, source)
    return corpus_command("record", "--output", "../corpus", "--", "sh", "-c", build, cwd=folder)


def test_a_source_that_is_compiled_in_a_folder_that_the_build_removes_is_a_module(tmp_path: Path) -> None:
    recorded = _removing(tmp_path / "small", "true", "../../main.c")

    assert not recorded.returncode, recorded.stderr
    corpus = Corpus.open(tmp_path / "corpus")
    assert [(module.name, module.source) for module in corpus.modules] == [("small/main.c", "main.c")]
    assert not (tmp_path / "small" / "made").exists()


@pytest.mark.parametrize(
    ("before", "source", "said"),
    [
        ("cp ../../main.c m.c", "m.c", "the build removed all sources that it compiled, as '/.*/small/made/here/m.c'"),
        ("mv ../../include/it.h .", "-I. ../../main.c", r"no source of the build compiles again \(1 tried\)"),
    ],
    ids=["a source", "a header"],
)
def test_a_build_that_removes_what_it_compiles_is_told_to_keep_it(
    before: str, source: str, said: str, tmp_path: Path
) -> None:
    recorded = _removing(tmp_path / "small", before, source)

    assert (recorded.returncode, bool(re.search(said, recorded.stderr))) == (2, True), recorded.stderr
    assert "let it keep" in recorded.stderr


def test_the_same_module_is_added_once_and_said(tmp_path: Path) -> None:
    write_project(tmp_path, {"main.c": MAIN, "h.c": HELPER})
    script = "gcc main.c h.c -o one; gcc main.c h.c -o two"

    ended = corpus_command("record", "--output", "corpus", "--", "sh", "-c", script, cwd=tmp_path)

    assert "2 modules, 2 programs" in ended.stdout
    assert "not added again" in ended.stdout


def test_a_compiler_in_a_variable_by_its_path_is_recorded(tmp_path: Path) -> None:
    write_project(tmp_path, {"h.c": HELPER})
    gcc = shutil.which("gcc")
    environment = {"CC": f"{gcc} -DFROM_CC"}

    corpus_command(
        "record", "--output", "corpus", "--", "sh", "-c", "$CC -c h.c", cwd=tmp_path, environment=environment
    )
    ended = corpus_command("show", "corpus", cwd=tmp_path)

    assert "1 projects" in ended.stdout


@pytest.mark.parametrize("text", [None, '#!/bin/sh\nexec gcc -DFROM_SCRIPT "$@"\n'])
def test_a_compiler_of_another_name_in_a_variable_is_recorded(text: str | None, tmp_path: Path) -> None:
    write_project(tmp_path, {"h.c": HELPER})
    compiler = tmp_path / "tools" / "special"
    compiler.parent.mkdir()
    if text is None:
        compiler.symlink_to(str(shutil.which("gcc")))
    else:
        compiler.write_text(text)
        compiler.chmod(0o755)

    ended = corpus_command(
        *("record", "--output", "corpus", "--", "sh", "-c", "$CC -c h.c"),
        cwd=tmp_path,
        environment={"CC": str(compiler)},
    )

    assert "1 modules, 0 programs, 0 failures" in ended.stdout, ended.stdout + ended.stderr


def test_an_interrupt_ends_all_processes_of_a_build_and_keeps_its_modules(tmp_path: Path) -> None:
    write_project(tmp_path, {"h.c": HELPER})
    mark = f"{tmp_path}/mark"
    build = f"gcc -c h.c; timeout 900 sh -c 'echo $$ > {mark}.new; mv {mark}.new {mark}; sleep 900' & sleep 900"
    words = command("record", "--output", "corpus", "--", "sh", "-c", build)
    process = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    try:
        until = time.monotonic() + SECONDS
        while not Path(mark).exists():
            assert time.monotonic() < until
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=SECONDS)
    finally:
        process.kill()

    assert process.returncode == 130
    assert "1 modules" in output
    with pytest.raises(ProcessLookupError):
        os.kill(int(Path(mark).read_text()), 0)


def test_a_signal_that_does_not_end_the_wait_for_a_build_interrupts_all_the_same(tmp_path: Path) -> None:
    began = time.monotonic()
    with interrupted_unnoticed("Popen.wait"):
        status, _ = record_build(["sleep", str(2 * SECONDS)], tmp_path)
    assert status == 130
    assert time.monotonic() - began < SECONDS


def test_a_build_that_cannot_be_started_is_a_clear_error(tmp_path: Path) -> None:
    ended = corpus_command("record", "--output", "corpus", "--", "no-such-make", cwd=tmp_path)

    assert ended.returncode == 2
    assert "no-such-make" in ended.stderr


def test_a_script_whose_first_line_names_no_interpreter_is_run_as_a_shell_runs_it(tmp_path: Path) -> None:
    write_project(tmp_path, {"h.c": HELPER, "build.sh": 'gcc -c "$1"\n'})
    (tmp_path / "build.sh").chmod(0o755)

    corpus = record(tmp_path, tmp_path / "corpus", "./build.sh", "h.c")

    assert [module.source for module in corpus.modules] == ["h.c"]


def test_a_build_folder_stays_usable_after_it_was_recorded(tmp_path: Path) -> None:
    write_project(
        tmp_path,
        {"CMakeLists.txt": "cmake_minimum_required(VERSION 3.13)\nproject(p C)\nadd_executable(prog main.c h.c)\n"}
        | {"main.c": MAIN, "h.c": HELPER},
    )

    corpus = record(tmp_path, tmp_path / "corpus", "sh", "-c", "cmake -S . -B build && cmake --build build")

    assert {module.source for module in corpus.modules} == {"main.c", "h.c"}
    assert [(program.name, program.kind) for program in corpus.programs] == [("build/prog", "executable")]
    # CMake has the compiler's path in its folder: a wrapper's in the user's cache.
    (folder,) = (tmp_path / ".cache" / "policybridge").glob("record-*")
    assert f"={folder}/" in (tmp_path / "build" / "CMakeCache.txt").read_text()
    (tmp_path / "h.c").touch()
    subprocess.run(["cmake", "--build", "build"], cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)


def _text(path: Path) -> bytes:
    return ObjectFile.read(path).content(".text")


@pytest.mark.parametrize("start", ["sh", "make", "python", "ninja"])
def test_a_compiler_that_is_started_by_its_path_is_recorded(start: str, tmp_path: Path) -> None:
    gcc, ar = shutil.which("gcc"), shutil.which("ar")
    assert gcc is not None
    ninja = f"rule cc\n  command = {gcc} -c $in -o $out\nbuild h.o: cc h.c\n"
    files = {"h.c": HELPER, "Makefile": f"all:\n\t{gcc} -c h.c\n\t{ar} rc libh.a h.o\n", "build.ninja": ninja}
    write_project(tmp_path, files)
    python = f"import subprocess; subprocess.run(['{gcc}', '-c', 'h.c'], check=True)"
    builds = {
        "sh": ("sh", "-c", f"{gcc} -c h.c"),
        "make": ("make",),
        "python": (sys.executable, "-c", python),
        "ninja": ("ninja",),
    }

    corpus = record(tmp_path, tmp_path / "corpus", *builds[start])

    assert [module.source for module in corpus.modules] == ["h.c"]


def test_a_build_folder_that_cmake_configured_before_is_recorded(tmp_path: Path) -> None:
    lists = "cmake_minimum_required(VERSION 3.13)\nproject(p C)\nadd_executable(prog main.c h.c)\n"
    write_project(tmp_path, {"CMakeLists.txt": lists, "main.c": MAIN, "h.c": HELPER})
    subprocess.run(["cmake", "-S", ".", "-B", "build"], cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)

    corpus = record(tmp_path, tmp_path / "corpus", "cmake", "--build", "build")

    assert program_of(corpus, "build/prog")[0] == "executable"
    assert len(corpus.modules) == 2


def test_only_tools_on_path_are_recorded_on_request(tmp_path: Path) -> None:
    write_project(tmp_path, {"h.c": HELPER, "u.c": HELPER})
    build = f"{shutil.which('gcc')} -c u.c; gcc -c h.c"

    corpus = record(tmp_path, tmp_path / "corpus", "sh", "-c", build, options=["--no-preload"])

    assert [module.source for module in corpus.modules] == ["h.c"]


def test_a_build_is_recorded_where_the_user_s_cache_cannot_be_written(tmp_path: Path) -> None:
    write_project(tmp_path, {"h.c": HELPER, "cache": "a file where the folder should be"})

    ended = corpus_command(
        *("record", "--output", "corpus", "--", "gcc", "-c", "h.c"),
        cwd=tmp_path,
        environment={"XDG_CACHE_HOME": str(tmp_path / "cache")},
    )

    assert "1 modules" in ended.stdout, ended.stderr


@pytest.mark.parametrize("name", ["a cache", "a:cache", "a'cache"])
def test_a_build_is_recorded_where_the_user_s_cache_has_an_odd_name(name: str, tmp_path: Path) -> None:
    write_project(tmp_path, {"h.c": HELPER, "u.c": HELPER, "v.c": HELPER})
    gcc = shutil.which("gcc")

    ended = corpus_command(
        *("record", "--output", "corpus", "--", "sh", "-c", f"gcc -c h.c && {gcc} -DU -c u.c && $CC -DV -c v.c"),
        cwd=tmp_path,
        environment={"XDG_CACHE_HOME": str(tmp_path / name), "CC": str(gcc)},
    )

    assert ended.stderr == ""
    assert "3 modules" in ended.stdout


def test_a_project_behind_a_link_is_recorded_under_its_own_paths(tmp_path: Path) -> None:
    write_project(tmp_path / "real", {"main.c": MAIN, "lib/h.c": HELPER})
    (tmp_path / "link").symlink_to("real")
    build = "gcc -c $PWD/lib/h.c -o lib/h.o; ln -s lib/h.o also.o; gcc main.c $PWD/also.o -o prog"

    ended = corpus_command(
        *("record", "--output", tmp_path / "corpus", "--", "sh", "-c", build),
        cwd=tmp_path / "link",
        environment={"PWD": str(tmp_path / "link")},
    )

    corpus = Corpus.open(tmp_path / "corpus")
    assert ended.returncode == 0, ended.stderr
    assert {(module.name, module.source) for module in corpus.modules} == {
        *(("real/lib/h.o", "lib/h.c"), ("real/main.c", "main.c"))
    }
    assert program_of(corpus, "prog") == ("executable", ("main.c", "lib/h.o"))


def test_objects_that_are_renamed_or_copied_are_known_in_programs(tmp_path: Path) -> None:
    write_project(tmp_path, {"main.c": MAIN, "h.c": HELPER})
    build = """mkdir objs && gcc -fPIC -c h.c -o objs/h.o && mv objs/h.o h.lo && gcc -shared h.lo -o libh.so
    gcc -c main.c && mkdir lib && ar rc libh.a h.lo && cp libh.a lib/libother.a && gcc main.o -Llib -lother -o prog"""

    corpus = record(tmp_path, tmp_path / "corpus", "sh", "-c", build)

    assert program_of(corpus, "libh.so") == ("shared", ("objs/h.o",))
    assert program_of(corpus, "prog") == ("executable", ("main.o", "objs/h.o"))


@pytest.mark.parametrize("flags", ["-flto", "-flto=thin"])
def test_a_program_of_bitcode_takes_the_members_of_an_archive_that_it_needs(tmp_path: Path, flags: str) -> None:
    write_project(
        tmp_path / "lto",
        {
            "main.c": "int helper(void);\nint main(void) { return helper(); }\n",
            "helper.c": "int deeper(void);\nint helper(void) { return deeper(); }\n",
            "deeper.c": "int deeper(void) { return 3; }\n",
            "other.c": "int helper(void);\nint main(void) { return 1 + helper(); }\n",
            "Makefile": f"CC = {need('clang-22')}\nCFLAGS = -O1 {flags}\n"
            "program: main.o libx.a\n"
            f"\t$(CC) $(CFLAGS) --ld-path={need('ld.lld-22')} -o $@ main.o libx.a\n"
            f"libx.a: other.o deeper.o helper.o\n\t{need('llvm-ar-22')} rcs $@ $^\n",
        },
    )
    corpus = record(tmp_path / "lto", tmp_path / "corpus", "make")
    kind, modules = program_of(corpus, "program")
    assert (kind, sorted(modules)) == ("executable", ["deeper.o", "helper.o", "main.o"])
    assert program_of(corpus, "libx.a") == ("archive", ("other.o", "deeper.o", "helper.o"))


def test_what_older_compilers_only_warn_of_is_a_module(tmp_path: Path) -> None:
    write_project(tmp_path, {"old.c": "f() { return g(); }\n", "old.cc": "int f() { register int c = 1; return c; }\n"})

    corpus = record(tmp_path, tmp_path / "corpus", "sh", "-c", "gcc -c old.c -o c.o; g++ -c old.cc -o cc.o")

    assert [module.language for module in corpus.modules] == ["c", "c++"]


def test_programs_that_libtool_links_through_convenience_libraries_are_recorded(tmp_path: Path) -> None:
    write_project(tmp_path, {"main.c": MAIN, "sub/h.c": HELPER})
    cc = f"{need('libtool')} --tag=CC --mode"
    build = f"""set -e
    {cc}=compile gcc -c sub/h.c -o sub/h.lo && {cc}=compile gcc -c main.c -o main.o
    {cc}=link gcc -o sub/libpart.la sub/h.lo
    {cc}=link gcc -o libwhole.la sub/libpart.la -rpath /usr/lib
    {cc}=link gcc -static -o prog main.o libwhole.la"""

    corpus = record(tmp_path, tmp_path / "corpus", "sh", "-c", build)

    assert program_of(corpus, "prog") == ("executable", ("main.o", "sub/.libs/h.o"))
    assert program_of(corpus, ".libs/libwhole.a") == ("archive", ("sub/.libs/h.o",))


def test_the_result_as_json_is_alone_on_the_standard_output(tmp_path: Path) -> None:
    folder = small_project(tmp_path / "small")
    build = ("record", "--json", "--output", "corpus", "--", "sh", "-c", "echo the build; make")
    done = corpus_command(*build, cwd=folder)
    told = json.loads(done.stdout)
    assert (done.returncode, "the build" in done.stderr) == (0, True)
    corpus = Corpus.open(folder / "corpus")
    assert (told["modules"], told["programs"]) == (len(corpus.modules), len(corpus.programs))
    assert (told["failures"], told["duplicates"]) == ({}, {})
    shown = corpus_command("show", "--json", "corpus", cwd=folder)
    assert json.loads(shown.stdout)["projects"] == told["projects"]


def test_an_interrupt_amid_the_builds_start_ends_the_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start, started = subprocess.Popen, list["subprocess.Popen[bytes]"]()

    def start_and_interrupt(words: list[str], **options: Any) -> "subprocess.Popen[bytes]":
        process = start(words, **options)
        if words[0] == "sleep":
            started.append(process)
            signal.raise_signal(signal.SIGINT)
        return process

    monkeypatch.setattr(subprocess, "Popen", start_and_interrupt)
    status, commands = record_build(["sleep", "600"], tmp_path, preload=False)
    assert (status, commands) == (130, [])
    (build,) = started
    assert build.poll() is not None

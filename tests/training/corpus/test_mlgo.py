"""LLVM's own tools (mlgo-utils) read our corpora, and we read theirs."""

import json
import shutil
import subprocess
from pathlib import Path

from mlgo.corpus import combine_training_corpus_lib, extract_ir_lib, make_corpus_lib

from policybridge_train.compiling.compilation import compile_command
from policybridge_train.compiling.compiler import newest_compiler
from policybridge_train.compiling.limits import Limits
from policybridge_train.corpus.description import Corpus
from policybridge_train.processes.process import compile_by
from tests.training.corpus.projects import HELPER, MAIN, corpus_command, record, small_project, write_project

_OBJCOPIES = ("llvm-objcopy-22", "llvm-objcopy-19", "llvm-objcopy", "objcopy")


def test_mlgo_utils_combines_our_corpora(tmp_path: Path) -> None:
    for name in ("one", "two"):
        record(small_project(tmp_path / f"{name}-project"), tmp_path / "all" / name, "make")

    combine_training_corpus_lib.combine_corpus(str(tmp_path / "all"))

    corpus = Corpus.open(tmp_path / "all")
    assert len(corpus.modules) == 6
    assert all(module.bitcode.is_file() and module.arguments[0] == "-cc1" for module in corpus.modules)


def test_our_arguments_have_the_form_that_clang_embeds_and_mlgo_utils_extracts(tmp_path: Path) -> None:
    project = write_project(tmp_path / "p", {"h.c": HELPER, "main.c": MAIN})
    compiler = newest_compiler()
    for name in ("h", "main"):
        command = [*compiler.start, "-Oz", "-Xclang", "-fembed-bitcode=all", "-c", f"{name}.c", "-o", f"{name}.o"]
        subprocess.run(command, cwd=project, check=True)
    theirs = _extract(project, tmp_path / "theirs")
    ours = record(project, tmp_path / "ours", "sh", "-c", "gcc -c h.c; gcc -c main.c")

    assert sorted(module.name for module in theirs.modules) == ["h.o", "main.o"]
    for module, other in zip(ours.modules, sorted(theirs.modules, key=lambda one: one.name), strict=True):
        assert module.arguments[:4] == other.arguments[:4]
        assert not {"-o", "-x"} & set(module.arguments)
        for one in (module, other):
            assert compile_by(compile_command(compiler, one, tmp_path / "out.o"), Limits()).ok
    added = corpus_command("add", "--output", "added", "theirs", cwd=tmp_path)
    assert "2 modules" in added.stdout


def test_a_corpus_of_bitcode_alone_that_mlgo_utils_made_is_read(tmp_path: Path) -> None:
    record(small_project(tmp_path / "small"), tmp_path / "ours", "make")
    names = make_corpus_lib.load_bitcode_from_directory(str(tmp_path / "ours"))
    (tmp_path / "theirs").mkdir()
    make_corpus_lib.copy_bitcode(names, str(tmp_path / "ours"), str(tmp_path / "theirs"))
    make_corpus_lib.write_corpus_manifest(names, str(tmp_path / "theirs"), ["-cc1", "-Oz"])

    corpus = Corpus.open(tmp_path / "theirs")

    assert sorted(module.name for module in corpus.modules) == ["small/h.o", "small/main.o", "small/u.o"]
    assert {module.arguments for module in corpus.modules} == {("-cc1", "-Oz")}


def _extract(project: Path, output: Path) -> Corpus:
    """Do what mlgo-utils' ``extract_ir`` does with a folder of objects."""
    objcopy = next(path for name in _OBJCOPIES if (path := shutil.which(name)))
    output.mkdir()
    found = extract_ir_lib.load_from_directory(str(project), str(output))
    paths = [one.extract(llvm_objcopy_path=objcopy) for one in found]
    extract_ir_lib.write_corpus_manifest(None, paths, str(output))
    assert json.loads((output / "corpus_description.json").read_text())["has_thinlto"] is False
    return Corpus.open(output)

"""tests.measures.repeats compiles by the same choices several times, and tells which objects differ."""

from pathlib import Path

import pytest

from policybridge_client.decisions.passes import ALTERNATIVES
from policybridge_train.compiling.compiler import Compiler, CompileTool
from tests.measures import repeats
from tests.native.conftest import MAJORS, Target
from tests.native.llvm.plugins import built_plugin, need
from tests.native.llvm.test_echoes import DESTROYING
from tests.native.llvm.test_pass_choices import LOOPS
from tests.training.corpora import write_corpus

# The choices of all alternatives, and everything that may be added, set or skipped.
TOGETHER = {**repeats.GROUPS, "all alternatives": tuple(dict.fromkeys(sum(ALTERNATIVES.values(), ())))}


@pytest.mark.parametrize("major", MAJORS)
def test_the_same_choices_give_the_same_object(native: Target, tmp_path: Path, major: str) -> None:
    sources = {"one/loops.c": LOOPS, "two/destroying.cpp": DESTROYING}
    corpus = write_corpus(tmp_path / "corpus", sources, compiler=need(f"clang-{major}"))
    tool = CompileTool(Compiler.find(f"clang-{major}"), plugins=built_plugin(native, "inliner", major).parent)
    for module in corpus.modules:
        assert list(repeats.differing(tool, module, TOGETHER, 2)) == []


def test_a_choice_whose_objects_differ_is_told(
    native: Target, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus = write_corpus(tmp_path / "corpus", {"one/loops.c": LOOPS}, compiler=need("clang-22"))
    # A compiler that writes its process's number behind each object.
    compiler = tmp_path / "clang-22"
    behind = 'for word; do [ "$last" = -o ] && echo $$ >> "$word"; last=$word; done'
    compiler.write_text(f'#!/bin/sh\n{need("clang-22")} "$@" || exit\ncase "$*" in *-o*) {behind} ;; esac\n:\n')
    compiler.chmod(0o755)
    plugins = built_plugin(native, "inliner", "22").parent
    words = ["--corpus", str(corpus.folder), "--compiler", str(compiler), "--plugins", str(plugins)]
    assert repeats.main([*words, "--only", "tight", "outliner"]) == 1
    said = capsys.readouterr().out.splitlines()
    told = [line.rpartition(": ")[2] for line in said if "loops.c: objects differ" in line]
    assert told == ["tight", "outliner", "add iroutliner@last"]

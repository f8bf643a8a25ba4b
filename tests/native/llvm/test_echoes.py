"""tests.measures.echoes compiles a corpus with LLVM's own decisions by the plugin, and counts the equal objects."""

import json
from pathlib import Path

import pytest

from tests.measures import echoes
from tests.native.conftest import MAJORS, Target
from tests.native.llvm.plugins import built_plugin, need
from tests.native.llvm.test_pass_choices import LOOPS
from tests.training.corpora import write_corpus

INLINED = (
    "int get(int); static int twice(int v) { return get(v) + get(v + 1); } int f(int v) { return twice(v) ^ twice(3); }"
)

DESTROYING = """
int get(int);
struct Guard { int n; ~Guard() { get(n); } };
int guarded(int n) { Guard guard{n}; return get(n) + get(1); }
"""


@pytest.mark.parametrize("major", MAJORS)
def test_objects_of_llvms_own_decisions_are_counted_as_the_same(native: Target, tmp_path: Path, major: str) -> None:
    sources = {"one/loops.c": LOOPS, "two/destroying.cpp": DESTROYING, "two/inlined.c": INLINED}
    corpus = write_corpus(tmp_path / "corpus", sources, compiler=need(f"clang-{major}"))
    found, plugin = tmp_path / "found.json", built_plugin(native, "inliner", major)
    words = ["--corpus", str(corpus.folder), "--compiler", f"clang-{major}", "--plugins", str(plugin.parent)]
    assert echoes.main([*words, "--json", str(found)]) == 0
    counted = json.loads(found.read_bytes())
    assert (counted["modules"], counted["same"]) == (3, 3)
    assert counted["decisions"] >= 2


def test_a_module_that_the_compiler_cannot_read_is_left_out(native: Target, tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus", {"one/loops.c": LOOPS}, compiler=need("clang-22"))
    corpus.modules[0].bitcode.write_bytes(b"no bitcode")
    found, plugin = tmp_path / "found.json", built_plugin(native, "inliner", "22")
    words = ["--corpus", str(corpus.folder), "--compiler", "clang-22", "--plugins", str(plugin.parent)]
    assert echoes.main([*words, "--json", str(found)]) == 0
    assert json.loads(found.read_bytes())["unusable"] == 1

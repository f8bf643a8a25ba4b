"""``policybridge autotune --linked``: by program, where modules share functions."""

from dataclasses import replace
from pathlib import Path

import pytest

from policybridge_client.decisions import read_store
from policybridge_train.compiling.linker import Linked, Linker
from policybridge_train.compiling.module import Program
from policybridge_train.compiling.result import Site
from policybridge_train.corpus.description import Corpus
from policybridge_train.objects.elf import ObjectFile
from policybridge_train.processes.process import Running
from policybridge_train.tuning.flips import Decided
from policybridge_train.tuning.linked import Programs
from policybridge_train.tuning.module import compile_with
from policybridge_train.tuning.search import Search
from policybridge_train.tuning.sharing import Sharable, Sharing
from tests.training.corpora import compile_all, write_corpus
from tests.training.tuning.autotuning import CountedCompiler, compile_result, searches, zig_compiler
from tests.training.tuning.boxes import boxes

_SHARED = """
extern "C" void take(int, int, int);
struct Each {
  int value;
  __attribute__((noinline)) void both(int n) { take(value, n, 1); take(value, n, 2); take(value, n, 3); }
  void one(int n) { take(value, n, 1); take(n, value, 2); if (n > 3) both(n); }
};
"""
_FUNCTIONS = "\n".join(f"int NAME{n}(Each &x) {{ x.one({n}); x.both({n}); return x.value; }}" for n in range(4))


def cpp(name: str) -> str:
    return _SHARED + _FUNCTIONS.replace("NAME", name)


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    sources = {"p/a.cpp": cpp("a"), "p/b.cpp": cpp("b"), "p/c.c": boxes("c")}
    programs = [
        Program("all", "p", "archive", tuple(sources)),
        Program("one", "p", "shared", ("p/a.cpp", "p/c.c", "p/not here.c")),
    ]
    return write_corpus(tmp_path / "corpus", sources, programs)


def test_functions_that_a_linker_keeps_once_are_known(tmp_path: Path, corpus: Corpus) -> None:
    objects = compile_all(corpus, tmp_path)
    assert "_ZN4Each4bothEi" in ObjectFile.read(objects["p/a.cpp"]).weak
    assert ObjectFile.read(objects["p/c.c"]).weak == []


def test_no_program_is_larger_and_nothing_is_compiled_twice(
    tmp_path: Path, corpus: Corpus, capfd: pytest.CaptureFixture[str]
) -> None:
    compiler, store = CountedCompiler.of(tmp_path / "counted", "zig"), tmp_path / "tuned.db"
    words = ("--corpus", corpus.folder, "--budget", 5, "--linked")
    assert compiler.tune(store, *words) == 0
    said = capfd.readouterr().out
    assert "linked: 2 programs, text " in said
    tuned = _texts(corpus, tmp_path / "tuned", store)
    default = _texts(corpus, tmp_path / "default", None)
    assert all(after <= before for after, before in zip(tuned, default, strict=True))
    assert sum(tuned) < sum(default)
    assert f"text {sum(default):,}, tuned {sum(tuned):,} " in said
    found = searches(store)
    assert set((found["p/b.cpp"].shared or {}).values()) == {2}
    # It is also in a program in which nothing else is of C++.
    assert found["p/a.cpp"].shared == {}
    compiles = compiler.compiles
    assert compiler.tune(store, *words) == 0
    assert compiler.compiles == compiles


def test_a_program_that_cannot_be_linked_is_named_with_the_reason(
    tmp_path: Path, corpus: Corpus, capfd: pytest.CaptureFixture[str]
) -> None:
    replace(corpus, programs=[*corpus.programs, Program("two", "p", "shared", ("p/not here.c",))]).write()
    compiler = CountedCompiler.of(tmp_path / "counted", "zig")
    assert compiler.tune(tmp_path / "tuned.db", "--corpus", corpus.folder, "--budget", 1, "--linked") == 0
    assert "\np/two is not linked: none of its modules has an object\n" in capfd.readouterr().out


def _texts(corpus: Corpus, folder: Path, store: Path | None) -> list[int]:
    folder.mkdir()
    compiler = zig_compiler()
    answers = {section.heading.path: section.answers for section in read_store(store).sections} if store else {}
    objects = {}
    for number, module in enumerate(corpus.modules):
        objects[module.name] = folder / f"{number}.o"
        made = compile_with(compiler, module, Decided(answers.get(module.name, {})), keep=True)
        objects[module.name].write_bytes(made.content)
    linked = [Linker.find().link(program, objects) for program in corpus.programs]
    assert all(isinstance(one, Linked) for one in linked)
    return [one.text for one in linked if isinstance(one, Linked)]


def test_modules_are_taken_back_until_no_program_is_larger(tmp_path: Path, corpus: Corpus) -> None:
    (tmp_path / "small").mkdir()
    (tmp_path / "large").mkdir()
    small = compile_all(corpus, tmp_path / "small")
    sources = {"p/a.cpp": cpp("a") + cpp("more").replace("Each", "Other"), "p/b.cpp": cpp("b"), "p/c.c": boxes("c")}
    large = compile_all(write_corpus(tmp_path / "corpus of large", sources), tmp_path / "large")
    pairs = {name: (small[name], large[name]) for name in small}
    linking = Programs(corpus.programs, Linker.find(), Running(), pairs)
    sizes = linking.settle(1)
    assert linking.refused == {"p/a.cpp"}
    assert [after <= before for _, before, after in sizes] == [True, True]


def test_a_shared_function_counts_for_its_part_of_the_program_that_shares_it_least() -> None:
    sharing = Sharing([Program("x", "p", "archive", ("a", "b", "c")), Program("y", "p", "archive", ("a", "b"))])
    for name in ("a", "b", "c"):
        sharing.add(name, ["both"])
    calls = [Site("1", "both", "of c", False, False, False, ()), Site("2", "both", "local", False, False, False, ())]
    sizes = {"both": 100, "local": 30}
    search = Search.begin(compile_result(200, sizes, calls, "an object", weak=("both",)))
    assert sharing.of("a", Sharable.of(search)) == {"both": 2}
    assert sharing.of("c", Sharable.of(search)) == {"both": 3}
    assert sharing.of("alone", Sharable.of(search)) == {}
    search.share({"both": 2})
    assert search.best_cost == 150
    assert search.cost(sizes, ["both", "local"]) == 80


def test_what_is_smaller_only_in_the_object_is_not_the_best() -> None:
    calls = [Site("1", "f", "both", False, False, False, ())]
    search = Search.begin(compile_result(200, {"both": 100, "f": 50}, calls, "first", weak=("both",)))
    search.share({"both": 4})
    turned = [Site("1", "f", "both", False, True, True, ())]
    search.note(compile_result(180, {"f": 130}, turned, "second"))
    assert search.best_object == "first"
    search.note(compile_result(210, {"both": 130, "f": 30}, turned, "third"))
    assert search.best_object == "third"
    search.refused = "third"
    assert search.shipped == Decided()


def test_of_objects_of_the_same_size_the_one_with_the_fewest_decisions_counts() -> None:
    calls = [Site(name, "f", "both", False, False, False, ()) for name in ("1", "2")]
    search = Search.begin(compile_result(200, {"both": 100, "f": 50}, calls, "first"))
    turned = [Site(name, "f", "both", False, True, True, ()) for name in ("1", "2")]
    assert search.note(compile_result(180, {"f": 130}, turned, "second"))
    assert search.note(compile_result(180, {"f": 130}, [turned[0], calls[1]], "third"))
    assert not search.note(compile_result(180, {"f": 130}, turned, "fourth"))
    assert search.best_object == "third"

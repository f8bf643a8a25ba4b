"""What is left of objects in a linked program."""

import sys
from pathlib import Path

import pytest

from policybridge_train.compiling.linker import Linked, Linker, Unlinked
from policybridge_train.compiling.module import Kind, Program
from policybridge_train.corpus.description import Corpus, programs_of
from policybridge_train.objects.elf import ObjectFile
from tests.training.corpora import compile_all, write_corpus

_BIG = "int sink(int); extern int data;\n__attribute__((noinline)) {linkage} int {name}(int x) {{ {body} return x; }}\n"
_BODY = " ".join(f"x = sink(x + {number}) ^ data;" for number in range(40))
_INLINE = (
    "int sink(int);\ninline __attribute__((noinline)) int shared(int x) { "
    + _BODY.replace("data", "3")
    + " return x; }\n"
)

_SOURCES = {
    "p/main.c": "int used(int); int main(void) { return used(3); }\n",
    "p/used.c": _BIG.format(linkage="", name="used", body=_BODY) + _BIG.format(linkage="", name="unused", body=_BODY),
    "p/hidden.c": _BIG.format(linkage='__attribute__((visibility("hidden")))', name="hidden", body=_BODY),
    "p/one.cpp": _INLINE + "int one(int x) { return shared(x); }\n",
    "p/two.cpp": _INLINE + "int two(int x) { return shared(x); }\n",
    "p/again.c": _BIG.format(linkage="", name="used", body=_BODY),
}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return write_corpus(tmp_path_factory.mktemp("a corpus"), _SOURCES)


@pytest.fixture(scope="module")
def objects(corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return compile_all(corpus, tmp_path_factory.mktemp('its "objects"'))


@pytest.fixture(params=["found", "lld"])
def linker(request: pytest.FixtureRequest) -> Linker:
    return Linker.find() if request.param == "found" else Linker((sys.executable, "-m", "ziglang", "ld.lld"))


def _program(kind: Kind, *names: str) -> Program:
    return Program("program", "p", kind, tuple(f"p/{name}" for name in names))


def _linked(program: Program, objects: dict[str, Path], linker: Linker | None = None) -> Linked:
    linked = (linker or Linker.find()).link(program, objects)
    assert isinstance(linked, Linked), linked
    return linked


def _size(objects: dict[str, Path], name: str, function: str) -> int:
    return ObjectFile.read(objects[f"p/{name}"]).functions[function]


def test_an_executable_has_what_its_main_needs_and_no_more(objects: dict[str, Path], linker: Linker) -> None:
    linked = _linked(_program("executable", "main.c", "used.c", "hidden.c"), objects, linker)
    needed = _size(objects, "main.c", "main") + _size(objects, "used.c", "used")
    assert needed <= linked.exec < needed + 64
    assert linked.text > linked.exec
    assert linked.note == ""
    assert linked.sections[".text"] == linked.exec


def test_a_shared_library_has_what_it_exports(objects: dict[str, Path], linker: Linker) -> None:
    linked = _linked(_program("shared", "used.c", "hidden.c"), objects, linker)
    exported = 2 * _size(objects, "used.c", "used")
    assert exported <= linked.exec < exported + 64


def test_an_archive_counts_as_a_whole_with_its_hidden_functions(objects: dict[str, Path], linker: Linker) -> None:
    linked = _linked(_program("archive", "used.c", "hidden.c"), objects, linker)
    whole = 3 * _size(objects, "used.c", "used")
    assert whole <= linked.exec < whole + 64


def test_a_function_that_two_objects_emit_is_linked_once(objects: dict[str, Path], linker: Linker) -> None:
    linked = _linked(_program("archive", "one.cpp", "two.cpp"), objects, linker)
    shared = _size(objects, "one.cpp", "_Z6sharedi")
    assert shared == _size(objects, "two.cpp", "_Z6sharedi")
    assert shared < linked.exec < 2 * shared


def test_symbols_that_are_defined_twice_do_not_end_it(objects: dict[str, Path], linker: Linker) -> None:
    linked = _linked(_program("executable", "main.c", "used.c", "again.c"), objects, linker)
    assert linked.exec == _linked(_program("executable", "main.c", "used.c"), objects, linker).exec


def test_missing_modules_are_named_and_the_rest_is_linked(objects: dict[str, Path], linker: Linker) -> None:
    linked = _linked(_program("executable", "main.c", "away.c"), objects, linker)
    assert linked.missing == ("p/away.c",)
    assert linked.exec > 0


def test_an_executable_without_main_is_kept_as_a_whole_and_says_so(objects: dict[str, Path], linker: Linker) -> None:
    linked = _linked(_program("executable", "used.c", "hidden.c"), objects, linker)
    assert linked.exec >= 3 * _size(objects, "used.c", "used")
    assert "no main" in linked.note


@pytest.mark.parametrize("content", [b"", b"no object", b"\x7fELF\x02\x01", b"cut"])
def test_a_program_with_a_broken_object_is_no_figure_but_a_reason(
    objects: dict[str, Path], tmp_path: Path, content: bytes
) -> None:
    broken = tmp_path / "broken.o"
    whole = objects["p/used.c"].read_bytes()
    broken.write_bytes(whole[: len(whole) // 2] if content == b"cut" else content)
    programs = (_program("archive", "used.c"), _program("shared", "one.cpp"))
    first, second = (Linker.find().link(program, {**objects, "p/used.c": broken}) for program in programs)
    assert isinstance(first, Unlinked)
    assert "broken.o" in first.reason
    assert isinstance(second, Linked)


def test_a_program_without_any_object_is_a_reason(objects: dict[str, Path]) -> None:
    unlinked = Linker.find().link(_program("archive", "away.c"), objects)
    assert isinstance(unlinked, Unlinked)
    assert "none of its modules" in unlinked.reason


def test_a_project_without_programs_is_one_archive(corpus: Corpus) -> None:
    program, *others = programs_of(corpus)
    assert not others
    assert (program.name, program.kind, program.modules) == ("p", "archive", tuple(_SOURCES))
    assert programs_of(Corpus(corpus.folder, corpus.modules, [_program("shared", "one.cpp")])) == [
        _program("shared", "one.cpp")
    ]


def test_names_with_quotes_and_spaces_are_kept(tmp_path: Path, linker: Linker) -> None:
    corpus = write_corpus(
        tmp_path,
        {"p/odd.c": 'int odd(void) __asm__("a \\"name\\" \\\\ of $ @ its own");\nint odd(void) { return 3; }\n'},
    )
    linked = _linked(_program("archive", "odd.c"), compile_all(corpus, tmp_path), linker)
    assert linked.exec > 0

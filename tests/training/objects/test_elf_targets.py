"""Objects of other machines, of 64 and of 32 bits: their sizes, functions, relocations, and programs."""

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from policybridge_core.errors import InvalidError
from policybridge_train.compiling.linker import Linked, Linker
from policybridge_train.compiling.module import Program
from policybridge_train.objects.elf import ObjectFile

_SOURCE: Final = """
const char constant[1000] = {1};
char written[1000] = {1};
char zeroed[1000];
int sink(int);
static __attribute__((noinline, used, aligned(16))) int local(int x) { return sink(x) * sink(x + 1) - x; }
int main(void) { return local(3) + sink(4); }
"""
_MACHINES: Final = {
    "x86_64-linux-musl": 62,
    "aarch64-linux-musl": 183,
    "riscv64-linux-musl": 243,
    "thumb-linux-musleabihf": 40,
}


@pytest.fixture(params=_MACHINES)
def made(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, Path]:
    monkeypatch.setenv("ZIG_LOCAL_CACHE_DIR", str(tmp_path / "zig"))
    (tmp_path / "a.c").write_text(_SOURCE)
    words = ["clang", "--target=" + request.param, "-mthumb", "-Oz", "-ffunction-sections", "-g0", "-c", "a.c"]
    words = [word for word in words if word != "-mthumb" or "thumb" in request.param]
    subprocess.run([sys.executable, "-m", "ziglang", *words], cwd=tmp_path, check=True)
    return request.param, tmp_path / "a.o"


def test_an_objects_machine_sizes_and_functions_are_read(made: tuple[str, Path]) -> None:
    target, file = made
    read = ObjectFile.read(file)

    assert read.machine == _MACHINES[target]
    assert set(read.functions) == {"main", "local"}
    assert all(10 <= size <= 100 for size in read.functions.values())
    assert read.exec >= sum(read.functions.values())
    assert read.loaded[".bss"] == 1000
    assert 1000 + read.exec <= read.text < 1500
    assert read.wanted == ["sink"]


def test_relocations_name_the_symbols_of_the_object(made: tuple[str, Path]) -> None:
    target, file = made
    read = ObjectFile.read(file)
    section = read.section_names.index(".text.main")
    offsets, places = read.relocations(section)

    # ARM's have their addends in the code, and are not read.
    assert len(offsets) == len(places)
    assert bool(places) == ("thumb" not in target)


def test_a_program_of_any_machine_is_linked_on_this_one(made: tuple[str, Path]) -> None:
    program = Program("program", "p", "executable", ("p/a.c",))
    linked = Linker.find().link(program, {"p/a.c": made[1]})

    assert isinstance(linked, Linked), linked
    assert 20 < linked.exec < 400
    assert not linked.note


@pytest.mark.parametrize("length", [16, 40, 51, 200])
def test_an_object_that_is_cut_off_is_refused_whatever_its_class(made: tuple[str, Path], length: int) -> None:
    with pytest.raises(InvalidError, match="cut off"):
        ObjectFile(made[1].read_bytes()[:length], "half.o")

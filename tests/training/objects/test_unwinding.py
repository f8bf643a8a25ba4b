"""What functions cost beside their code: parts of unwind and exception tables, and jump tables."""

import subprocess
import sys
from pathlib import Path

import pytest

from policybridge_train.compiling.objectives import function_bytes, jump_tables, unwinding
from policybridge_train.objects.elf import ObjectFile

_SOURCE = """
int sink(int);
struct Guard { ~Guard(); };
extern "C" {
int leaf(int x) { return x; }
int saving(int a, int b, int c, int d) { return sink(a) + sink(b) * sink(c) - sink(d) + a * b * c * d; }
int catching(int x) { Guard guard; try { return sink(x); } catch (int thrown) { return sink(thrown); } }
int guarding(int x) { Guard one, two; return sink(x) + sink(x + 1); }
}
inline __attribute__((noinline, used)) int weak(int x) { Guard guard; return sink(x); }
"""


@pytest.mark.parametrize("target", ["x86_64-linux-musl", "aarch64-linux-musl"])
@pytest.mark.parametrize("options", [(), ("-ffunction-sections",)], ids=["together", "sections"])
def test_the_bytes_of_code_and_unwinding_of_all_functions_are_the_text_of_an_object(
    tmp_path: Path, target: str, options: tuple[str, ...]
) -> None:
    source, output = tmp_path / "a.cpp", tmp_path / "a.o"
    source.write_text(_SOURCE)
    start = [sys.executable, "-m", "ziglang", "clang", "-target", target]
    words = ["-Oz", "-fexceptions", "-fasynchronous-unwind-tables", *options]
    subprocess.run([*start, *words, "-c", str(source), "-o", str(output)], check=True)
    made = ObjectFile.read(output)
    beside = unwinding(made)
    assert beside.keys() == made.functions.keys()
    # A leaf saves no registers.
    assert beside["leaf"] < beside["saving"]
    # Nothing is left but the heads of the unwind table: the exception tables are the functions', too.
    assert made.content(".gcc_except_table") or options
    heads = made.text - sum(made.functions.values()) - sum(beside.values())
    assert 0 < heads <= 64


def test_an_object_without_unwind_tables_has_functions_of_code_alone(tmp_path: Path) -> None:
    source, output = tmp_path / "a.c", tmp_path / "a.o"
    source.write_text("int leaf(int x) { return x; }\n")
    words = ["-Oz", "-fno-asynchronous-unwind-tables", "-c", str(source), "-o", str(output)]
    subprocess.run([sys.executable, "-m", "ziglang", "clang", "-target", "x86_64-linux-musl", *words], check=True)
    made = ObjectFile.read(output)
    assert made.functions
    assert unwinding(made) == {}


_ALIASES = """
int sink(int) noexcept;
struct Base { Base(int x); virtual ~Base(); int held; };
Base::Base(int x) : held(sink(x)) {}
Base::~Base() { sink(held); }
extern "C" {
int other(int);
int early(int x) { return other(x) + 1; }
int own(int x) { return sink(x) * sink(x + 1); }
int other(int) __attribute__((weak, alias("own")));
}
"""


def test_a_function_with_aliases_counts_once_by_its_own_name_with_its_parts_of_tables(tmp_path: Path) -> None:
    source, output = tmp_path / "a.cpp", tmp_path / "a.o"
    source.write_text(_ALIASES)
    words = ["-Oz", "-fasynchronous-unwind-tables", "-c", str(source), "-o", str(output)]
    subprocess.run([sys.executable, "-m", "ziglang", "clang", "-target", "x86_64-linux-musl", *words], check=True)
    made = ObjectFile.read(output)
    # The constructor and the destructor of a whole object are aliases of those of a base.
    assert {*made.globals()} > {"_ZN4BaseC1Ei", "_ZN4BaseD1Ev", "other"}
    assert {*made.functions} == {"_ZN4BaseC2Ei", "_ZN4BaseD2Ev", "_ZN4BaseD0Ev", "early", "own"}
    assert unwinding(made).keys() == made.functions.keys()
    assert sum(made.functions.values()) == pytest.approx(made.exec, abs=8)


_SWITCHES = """
int sink(int);
int none(int x) { return sink(x); }
int one(int x) { switch (x) { %s } return 0; }
static int hidden(int x) { switch (x) { %s } return sink(x - 1); }
int two(int x) { return hidden(x) + sink(x); }
"""


@pytest.mark.parametrize("options", [("-fPIC",), ("-fno-pic",), ("-ffunction-sections", "-fPIC")], ids=" ".join)
def test_a_functions_bytes_include_its_jump_tables(tmp_path: Path, options: tuple[str, ...]) -> None:
    source, output = tmp_path / "a.c", tmp_path / "a.o"
    cases = [" ".join(f"case {n}: return sink({n * n + 3 * most}) + {n};" for n in range(most)) for most in (9, 14)]
    source.write_text(_SWITCHES % tuple(cases))
    words = ["-Oz", "-fno-asynchronous-unwind-tables", "-fno-inline", *options, "-c", str(source), "-o", str(output)]
    subprocess.run([sys.executable, "-m", "ziglang", "clang", "-target", "x86_64-linux-gnu", *words], check=True)
    made = ObjectFile.read(output)
    entry = 8 if "-fno-pic" in options else 4
    assert jump_tables(made) == {"one": 9 * entry, "hidden": 14 * entry}
    # Nothing else of this object is loaded.
    assert sum(function_bytes(made).values()) == pytest.approx(made.text, abs=8)

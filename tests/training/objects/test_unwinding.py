"""What functions cost beside their code."""

import subprocess
import sys
from pathlib import Path

import pytest

from policybridge_train.compiling.objectives import unwinding
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

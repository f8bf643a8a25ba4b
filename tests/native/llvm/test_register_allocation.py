"""LLVM's basic register allocator by function, in stock compilers whose one allocator is the greedy one."""

from pathlib import Path

import pytest

from policybridge_train.objects.elf import ObjectFile
from tests.native.conftest import Target
from tests.native.llvm.stores import Tuner

PRESSED = """
int get(int);
#define BODY { int s = 0, t = 1, u = 2, v = 3; \\
  for (int i = 0; i < n; i++) { s += a[i] * t + get(u); t ^= a[i + n] + s; u += get(t) * v; v -= s + a[u & 7] + b; } \\
  return s + t * u - v * get(s ^ v) + b; }
int first(int *a, int n, int b) BODY
int second(int *a, int n, int b) BODY
__attribute__((optnone, noinline)) int plain(int *a, int n, int b) BODY
"""
"""Functions with more values than registers."""

BASIC = ("-mllvm", "-regalloc=basic")


@pytest.fixture
def tuner(native: Target, major: str, tmp_path: Path) -> Tuner:
    return Tuner.of(native, major, tmp_path)


@pytest.fixture
def pressed(tuner: Tuner) -> Path:
    source = tuner.folder / "pressed.c"
    source.write_text(PRESSED)
    return source


def functions(tuner: Tuner, source: Path, *flags: str) -> dict[str, bytes]:
    """Give each function's section; addresses in it are relocations."""
    made = tuner.plain(source, "-Oz", "-ffunction-sections", *flags)
    return sections_of(made)


def sections_of(made: bytes) -> dict[str, bytes]:
    found = ObjectFile(made)
    return {name: found.content(f".text.{name}") for name in found.functions}


def choose(tuner: Tuner, *names: str) -> str:
    return tuner.choose("pressed.c", [(name, "set", "basic-regalloc") for name in names])


def test_a_function_has_the_basic_allocator_and_the_others_have_llvms_own(tuner: Tuner, pressed: Path) -> None:
    greedy, basic = functions(tuner, pressed), functions(tuner, pressed, *BASIC)
    made = tuner.compile(pressed, "-Oz", "-ffunction-sections", decisions=choose(tuner, "second"))
    assert sections_of(made.output) == greedy | {"second": basic["second"]} != greedy
    assert made.store["applied"] == 1


def test_a_function_without_optimisation_keeps_its_allocator(tuner: Tuner, pressed: Path) -> None:
    greedy, basic = functions(tuner, pressed), functions(tuner, pressed, *BASIC)
    made = tuner.compile(pressed, "-Oz", "-ffunction-sections", decisions=choose(tuner, ""))
    assert sections_of(made.output) == basic | {"plain": greedy["plain"]}


@pytest.mark.parametrize(
    "flags",
    ["-g", "-fno-omit-frame-pointer", "-fsanitize=address", "-fstack-protector-all", "-mavx512f -O2", "-fno-pic"],
)
def test_the_basic_allocator_gives_the_code_of_its_option_beside_other_flags(
    tuner: Tuner, pressed: Path, flags: str
) -> None:
    pressed.write_text(PRESSED.replace("__attribute__((optnone, noinline))", ""))
    words = ("-Oz", *flags.split())
    level = "O2" if "-O2" in words else "Oz"
    store = tuner.choose("pressed.c", [("", "set", "basic-regalloc")], level=level)
    made = tuner.compile(pressed, *words, decisions=store)
    assert made.output == tuner.plain(pressed, *words, *BASIC)


@pytest.mark.parametrize(
    "flags",
    [
        "-mllvm -regalloc=greedy",
        "-mllvm -regalloc=pbqp",
        "-mllvm -optimize-regalloc=false",
        "--target=aarch64-linux-gnu",
        "--target=i386-linux-gnu",
        "--target=wasm32",
    ],
)
def test_llvms_own_allocator_stays_where_another_may_be_meant(tuner: Tuner, pressed: Path, flags: str) -> None:
    words = ("-Oz", *flags.split())
    made = tuner.compile(pressed, *words, decisions=choose(tuner, ""))
    assert (made.status, made.output) == (0, tuner.plain(pressed, *words))

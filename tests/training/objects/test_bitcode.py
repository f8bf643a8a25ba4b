"""The symbols of bitcode are those that llvm-nm reads, and nothing else than an InvalidError comes of a broken file."""

import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policybridge_core.errors import InvalidError
from policybridge_train.objects.bitcode import BitcodeSymbols
from tests.native.llvm.plugins import need

SOURCE = """
extern int far(int), farther(int) __attribute__((weak));
static int local(int x) { return far(x) + (farther ? farther(x) : 0); }
int common;
int known(int x) { return local(x) + common; }
int weak(int x) __attribute__((weak));
int weak(int x) { return __builtin_ctz(x); }
__attribute__((visibility("hidden"))) int hidden = 3;
int other(int x) __attribute__((alias("known")));
__asm__(".globl assembled\\nassembled: call called\\n");
"""


def bitcode(folder: Path, compiler: str, *flags: str) -> Path:
    (folder / "a.c").write_text(SOURCE)
    words = [need(compiler), "-O1", "-fcommon", *flags, "-c", "a.c", "-o", "a.o"]
    subprocess.run(words, cwd=folder, check=True)
    return folder / "a.o"


def llvms(path: Path) -> tuple[frozenset[str], frozenset[str]]:
    words = [need("llvm-nm-22"), "-g", "--format=posix", str(path)]
    lines = subprocess.run(words, check=True, capture_output=True, text=True).stdout.splitlines()
    kinds = [(line.split()[0], line.split()[1]) for line in lines]
    defined = frozenset(name for name, kind in kinds if kind not in "Uwv")
    return defined, frozenset(name for name, kind in kinds if kind == "U")


@pytest.mark.parametrize("compiler", ["clang-19", "clang-22"])
@pytest.mark.parametrize(
    "flags", [("-flto",), ("-flto=thin",), ("-flto=thin", "-fsplit-lto-unit"), ("-flto=thin", "-gline-tables-only")]
)
def test_symbols_of_bitcode_are_those_of_llvm_nm(tmp_path: Path, compiler: str, flags: tuple[str, ...]) -> None:
    path = bitcode(tmp_path, compiler, *flags)
    found = BitcodeSymbols.of(path.read_bytes())
    assert (found.defined, found.wanted) == llvms(path)
    assert {"known", "weak", "common", "hidden", "other", "assembled"} == found.defined
    assert {"far", "called"} == found.wanted


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return bitcode(tmp_path_factory.mktemp("bitcode"), "clang-22", "-flto").read_bytes()


def read(data: bytes) -> None:
    with suppress(InvalidError):
        BitcodeSymbols.of(data)


@settings(max_examples=300)
@given(place=st.integers(0, 1 << 20), noise=st.binary(max_size=16))
def test_a_broken_file_is_an_invalid_error_or_has_symbols(whole: bytes, place: int, noise: bytes) -> None:
    place %= len(whole)
    read(whole[:place])
    read(whole[:place] + noise + whole[place + len(noise) :])
    read(whole[:4] + noise)


def test_a_number_that_never_ends_is_refused_at_its_start() -> None:
    with pytest.raises(InvalidError, match="too large"):
        BitcodeSymbols.of(b"BC\xc0\xde" + b"\xfd" + b"\xff" * (1 << 20))

"""The size of code."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from policybridge_train.objects.elf import ObjectFile

SOURCE = """
const char constant[{constant}] = {{1}};
char written[{written}] = {{1}};
char zeroed[{zeroed}];
int call(int x) {{ return {calls}; }}
"""


@pytest.fixture
def size_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    monkeypatch.setenv("ZIG_LOCAL_CACHE_DIR", str(tmp_path / "zig"))

    def compiled(constant: int = 100, written: int = 100, zeroed: int = 100, calls: str = "x") -> int:
        (tmp_path / "a.c").write_text(SOURCE.format(constant=constant, written=written, zeroed=zeroed, calls=calls))
        flags = ["-target", "x86_64-linux-musl", "-Oz", "-g0", "-c", "a.c", "-o", "a.o"]
        subprocess.run([sys.executable, "-m", "ziglang", "cc", *flags], cwd=tmp_path, check=True)
        return ObjectFile.read(tmp_path / "a.o").text

    return compiled


def test_constants_and_code_count_and_data_does_not(size_of: Callable[..., int]) -> None:
    size = size_of()
    assert size_of(constant=1100) == size + 1000
    assert size_of(calls="x / (x + 3) % 7") > size
    assert size_of(written=1100, zeroed=2100) == size

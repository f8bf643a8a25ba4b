"""The sizes of the programs that a build linked."""

import subprocess
from pathlib import Path

import pytest

from policybridge_core.errors import InvalidError
from policybridge_train.checking.linked import Sizes, sizes_of
from tests.native.llvm.plugins import need


@pytest.mark.parametrize("kind", ["-static", "-pie"])
def test_a_static_program_is_measured_stripped_as_any_other(tmp_path: Path, kind: str) -> None:
    source = tmp_path / "a.c"
    source.write_text('#include <stdio.h>\nint main(void) { return puts("a") < 0; }\n')
    for name, symbols in (("bare", "-s"), ("whole", "-g")):
        subprocess.run([need("gcc"), "-O2", kind, symbols, str(source), "-o", str(tmp_path / name)], check=True)
    sizes = sizes_of(tmp_path)
    assert sizes["bare"].text == sizes["whole"].text > 0
    assert sizes["whole"].file < (tmp_path / "whole").stat().st_size


def test_what_lld_fills_a_page_with_is_no_data(tmp_path: Path) -> None:
    def sizes(constants: int) -> Sizes:
        (tmp_path / "p.c").write_text(f"const char kept[{constants}] = {{1}};\nint written[3] = {{1}};\n")
        linking = ["-shared", "-nostdlib", "-fPIC", f"--ld-path={need('ld.lld-22')}", "-Wl,-z,relro,-z,now"]
        subprocess.run([need("clang-22"), *linking, "p.c", "-o", "p.so"], cwd=tmp_path, check=True)
        return sizes_of(tmp_path)["p.so"]

    small, large = sizes(100), sizes(300)
    assert small.text + 200 == large.text
    assert small.data == large.data


def test_a_program_that_no_strip_can_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "broken").write_bytes(b"\x7fELF\x09\x01\x01" + bytes(9) + b"\x02\x00" + bytes(46))
    with pytest.raises(InvalidError, match=r"/broken cannot be stripped: ."):
        sizes_of(tmp_path)

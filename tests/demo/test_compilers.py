"""How the demo's compilers are told to compile."""

import os
import subprocess
from pathlib import Path

import pytest

from policybridge_demo.compilers import COMPILERS
from policybridge_demo.corpus import Module, library_root
from tests.client.compilers import parameters


@pytest.mark.parametrize("compiler", ["zig", *parameters("clang-19", "clang-22")])
@pytest.mark.parametrize("path", ["libc/musl/src/crypt/crypt_md5.c", "libcxxabi/src/cxa_vector.cpp"])
def test_code_is_compiled_at_the_real_oz(tmp_path: Path, compiler: str, path: str) -> None:
    command = [*COMPILERS[compiler](Module(path), tmp_path / "a.ll"), "-S", "-emit-llvm"]
    environment = {**os.environ, "ZIG_LOCAL_CACHE_DIR": str(tmp_path / "zig")}
    subprocess.run(command, cwd=library_root(), env=environment, check=True)
    # At -Os it would be optsize alone.
    assert " minsize " in (tmp_path / "a.ll").read_text()

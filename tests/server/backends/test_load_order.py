"""TensorFlow and triton in one process: the real ones abort it in the wrong order, and so do these."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TENSORFLOW = """
import sys
loaded = "triton._C.libtriton" in sys.modules
"""
TRITON = """
import os, sys
if "tensorflow" in sys.modules:
    os.abort()
"""
PROGRAM = """
from policybridge_server.backends.contract import load_backend
load_backend("python")
import tensorflow
import triton._C.libtriton
print(tensorflow.loaded)
"""


def write_packages(folder: Path, *, triton: bool) -> None:
    (folder / "tensorflow").mkdir(parents=True)
    (folder / "tensorflow" / "__init__.py").write_text(TENSORFLOW)
    if triton:
        (folder / "triton" / "_C").mkdir(parents=True)
        (folder / "triton" / "__init__.py").touch()
        (folder / "triton" / "_C" / "__init__.py").touch()
        (folder / "triton" / "_C" / "libtriton.py").write_text(TRITON)


def run(folder: Path, program: str) -> str:
    path = os.pathsep.join([str(folder), *sys.path])
    ran = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return ran.stdout


def test_triton_is_loaded_before_tensorflow_whoever_loads_that(tmp_path: Path) -> None:
    write_packages(tmp_path, triton=True)
    assert run(tmp_path, PROGRAM) == "True\n"


def test_tensorflow_is_loaded_as_ever_where_there_is_no_triton(tmp_path: Path) -> None:
    write_packages(tmp_path, triton=False)
    assert run(tmp_path, PROGRAM.replace("import triton._C.libtriton\n", "")) == "False\n"


def test_the_wrong_order_aborts_without_the_server(tmp_path: Path) -> None:
    write_packages(tmp_path, triton=True)
    with pytest.raises(subprocess.CalledProcessError, match="SIGABRT"):
        run(tmp_path, "import tensorflow\nimport triton._C.libtriton\n")

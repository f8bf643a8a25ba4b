"""Every input in the tree for the fuzzers in C++, under the sanitizers of addresses and undefined behaviour."""

import subprocess
from pathlib import Path

import pytest

from tests.fuzzing.native import NATIVE, build
from tests.fuzzing.native import missing as lacking
from tests.native.conftest import missing

_CORPUS = Path(__file__).parent / "corpus"


@pytest.mark.parametrize("name", NATIVE)
def test_each_native_target_keeps_its_promise_on_every_input_of_the_corpus(name: str) -> None:
    if what := lacking():
        missing(what)
    inputs = sorted(map(str, (_CORPUS / name).iterdir()))
    done = subprocess.run([build(name), *inputs], capture_output=True, text=True, errors="replace", check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(file in done.stderr for file in inputs)

"""Decisions by the form in the compiler are those of the server, with exploration and without, over a few modules."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.measures import same_here
from tests.native.conftest import Target
from tests.native.llvm.stores import Tuner


def test_objects_and_records_of_a_few_modules_are_the_same_by_every_policy(
    native: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with TemporaryDirectory(prefix="pb-") as folder, same_here.serving(Path(folder)) as server:
        found = same_here.compare(Tuner.of(native, same_here.MAJOR, tmp_path), server, PATHS)
    for case, each in found.items():
        assert each.modules == len(PATHS)
        assert each.decisions > 0, case
        # ONNX Runtime gives other last bits of a dense network, which seldom become another step of a log-probability.
        seldom = each.differing.pop("log-probabilities", 0)
        assert not +each.differing, case
        assert seldom <= (0.01 * each.decisions if case == "dense explored" else 0), case


PATHS = ("libc/musl/src/regex/regcomp.c", "libunwind/src/libunwind.cpp")


def test_modules_are_of_both_languages() -> None:
    paths = same_here.modules(500)
    assert len(set(paths)) == 500
    assert sum(path.endswith(".c") for path in paths) > 100
    assert sum(path.endswith(".cpp") for path in paths) > 100

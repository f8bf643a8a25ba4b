"""A compiler's version is asked for once, and again when it may have changed."""

import os
import shutil
import sys
from pathlib import Path

import pytest

from policybridge_client.llvm.versions import UNKNOWN, llvm_version


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def write_compiler(path: Path, version: int) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f'#!/bin/sh\necho asked >> {path}.log\necho "Debian clang version {version}.1.7"\n')
    path.chmod(0o755)
    return path


def times_asked(path: Path) -> int:
    log = Path(f"{path}.log")
    return len(log.read_text().splitlines()) if log.exists() else 0


def test_it_is_asked_once(tmp_path: Path) -> None:
    clang = write_compiler(tmp_path / "clang", 19)
    assert [llvm_version([str(clang)]) for _ in range(3)] == [19] * 3
    assert times_asked(clang) == 1


def test_a_compiler_that_was_replaced_is_asked_again(tmp_path: Path) -> None:
    clang = write_compiler(tmp_path / "clang", 19)
    assert llvm_version([str(clang)]) == 19
    write_compiler(clang, 22)
    os.utime(clang, (1, 1))
    assert llvm_version([str(clang)]) == 22


def test_names_that_lead_to_one_wrapper_are_told_apart(tmp_path: Path) -> None:
    wrapper = tmp_path / "ccache"
    wrapper.write_text('#!/bin/sh\necho "clang version ${0##*-}.0.0"\n')
    wrapper.chmod(0o755)
    for name in ("clang-19", "clang-22"):
        (tmp_path / name).symlink_to(wrapper)
    assert [llvm_version([str(tmp_path / name)]) for name in ("clang-19", "clang-22")] == [19, 22]


def test_ziglangs_is_known_without_starting_it_twice(cache: Path) -> None:
    start = [sys.executable, "-m", "ziglang", "cc"]
    assert llvm_version(start) == llvm_version(start) >= 21
    assert len(list((cache / "policybridge" / "llvm-versions").iterdir())) == 1


def test_a_cache_that_cannot_be_written_does_no_harm(tmp_path: Path, cache: Path) -> None:
    cache.write_text("a file where the folder should be")
    clang = write_compiler(tmp_path / "clang", 19)
    assert [llvm_version([str(clang)]) for _ in range(2)] == [19] * 2


def test_what_says_no_version_is_unknown(tmp_path: Path) -> None:
    assert llvm_version([shutil.which("true") or "true"]) == UNKNOWN
    assert llvm_version([str(tmp_path / "clang")]) == UNKNOWN

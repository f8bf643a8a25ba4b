"""What is kept of plain compilations, and what is not trusted."""

import hashlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from policybridge_train.compiling.result import CompileResult
from policybridge_train.processes.process import Status
from policybridge_train.scoring.cache import Cache

_OBJECT = b"an object"


def _put(folder: Path, tmp_path: Path) -> tuple[Cache, str]:
    cache, file = Cache(folder), tmp_path / "made.o"
    file.write_bytes(_OBJECT)
    key = cache.key("clang", ["-Oz"], "digest")
    cache.put(key, CompileResult(seconds=1.5, totals={"text": 7}, digest=hashlib.sha256(_OBJECT).hexdigest()), file)
    return cache, key


def test_what_was_put_is_found_by_another_cache_of_the_folder(tmp_path: Path) -> None:
    _, key = _put(tmp_path / "cache", tmp_path)
    kept = Cache(tmp_path / "cache").get(key)
    assert kept is not None
    assert (kept[0].text, kept[0].seconds, kept[0].cached) == (7, 1.5, True)
    assert kept[1].read_bytes() == _OBJECT


def test_other_flags_and_other_modules_are_other_keys() -> None:
    keys = {Cache.key("clang", flags, digest) for flags in (["-Oz"], ["-Oz", "-x"], ["-Oz -x"]) for digest in "ab"}
    assert len(keys) == 6


@pytest.mark.parametrize("ending", [".json", ".o"])
@pytest.mark.parametrize("content", [b"", b"{", b'{"status":"ok"}', b"\xff" * 100, None])
def test_a_broken_or_missing_file_is_compiled_again(tmp_path: Path, ending: str, content: bytes | None) -> None:
    cache, key = _put(tmp_path / "cache", tmp_path)
    (broken,) = (tmp_path / "cache").rglob(f"*{ending}")
    if content is None:
        broken.unlink()
    else:
        broken.write_bytes(content)
    assert cache.get(key) is None
    _put(tmp_path / "cache", tmp_path)
    assert cache.get(key) is not None


def test_a_result_that_names_a_file_elsewhere_is_not_followed(tmp_path: Path) -> None:
    cache, key = _put(tmp_path / "cache", tmp_path)
    (tmp_path / "secret.o").write_bytes(b"secret")
    (kept,) = (tmp_path / "cache").rglob("*.json")
    kept.write_bytes(b'{"status":"ok","digest":"../../secret"}')
    assert cache.get(key) is None


def test_failures_are_not_kept(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    cache.put("key", CompileResult(status=Status.TIMEOUT), tmp_path / "no.o")
    assert cache.get("key") is None
    assert not (tmp_path / "cache").exists()


def test_a_folder_that_cannot_be_made_only_costs_time(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    cache, key = _put(tmp_path / "file" / "cache", tmp_path)
    assert cache.get(key) is None


def test_several_runs_may_put_and_get_at_once(tmp_path: Path) -> None:
    def put_and_get(number: int) -> bool:
        own = tmp_path / str(number)
        own.mkdir()
        cache, key = _put(tmp_path / "cache", own)
        kept = cache.get(key)
        return kept is not None and kept[1].read_bytes() == _OBJECT

    with ThreadPoolExecutor(4) as runs:
        assert all(runs.map(put_and_get, range(40)))
    assert not list((tmp_path / "cache").rglob(".new-*"))

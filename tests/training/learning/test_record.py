"""The record of a training run."""

from pathlib import Path

import pytest

from policybridge_core.errors import InvalidError, PreconditionError
from policybridge_train.learning.record import Iteration, Record

MADE_BY = {"task": "inline", "seed": "0"}
ITERATION = Iteration(0, 1, "sha256:00", 3, 1.5, {"p": {"text": 10.0}}, {"least": 4.0})


def test_a_run_is_continued_from_what_was_kept(tmp_path: Path) -> None:
    with Record(tmp_path / "run.db", MADE_BY) as record:
        record.keep(1, "b", 2, b"second")
        record.keep(0, "odd \udcff", 3, b"first")
        record.finish(ITERATION)
    with Record(tmp_path / "run.db", MADE_BY) as record:
        assert record.has(0, "odd \udcff")
        assert not record.has(1, "odd \udcff")
        assert [data for _, _, data in record.pieces(2)] == [b"first", b"second"]
        assert [data for _, _, data in record.pieces(1)] == [b"first"]
        assert record.compiles() == 5
        assert record.iterations() == [ITERATION]


def test_a_run_that_was_started_otherwise_is_refused(tmp_path: Path) -> None:
    Record(tmp_path / "run.db", MADE_BY).__exit__(None, None, None)
    with pytest.raises(PreconditionError, match="seed = 0, and not 1"):
        Record(tmp_path / "run.db", {**MADE_BY, "seed": "1"})


def test_a_run_of_another_version_which_knows_other_settings_is_refused_with_a_cure_that_helps(tmp_path: Path) -> None:
    made_by = {"algorithm": "credit", "settings": '{"iterations":2}'}
    with Record(tmp_path / "run.db", made_by):
        pass
    more = {**made_by, "settings": '{"iterations":2,"linked":false}'}
    with pytest.raises(PreconditionError, match=r"another version, .* by linked; go on with that version, or give"):
        Record(tmp_path / "run.db", more)
    other = {**made_by, "settings": '{"iterations":3}'}
    with pytest.raises(PreconditionError, match=r'settings = {"iterations":2}, and not {"iterations":3}; go on with'):
        Record(tmp_path / "run.db", other)


def test_two_trainers_do_not_work_in_one_folder(tmp_path: Path) -> None:
    with Record(tmp_path / "run.db", MADE_BY), pytest.raises(PreconditionError, match="another run works in"):
        Record(tmp_path / "run.db", MADE_BY)


def test_a_foreign_file_is_left_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "run.db"
    file.write_bytes(b"no database, and longer than a header" * 100)
    before = file.read_bytes()
    with pytest.raises(InvalidError, match="cannot be read or written"):
        Record(file, MADE_BY)
    assert file.read_bytes() == before

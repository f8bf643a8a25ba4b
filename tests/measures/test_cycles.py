"""The table of programs and their inputs, by which speed is measured."""

import sqlite3
import subprocess
import wave
from contextlib import closing
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import msgspec
import pytest

from policybridge_train.speed.confirming import Times
from tests.measures.cycles import Bench, Compared, Kept, Measured, read_table, told
from tests.measures.cycles_inputs import KINDS, make


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_an_input_is_the_same_for_its_number_and_another_for_another(kind: str) -> None:
    first = make(kind, 5000, 0)
    assert first == make(kind, 5000, 0)
    assert first != make(kind, 5000, 2)
    assert 5000 <= len(first) <= 8000


def test_each_program_has_an_input_of_a_known_kind() -> None:
    table = read_table()
    assert len(table) >= 30
    assert sum(entry.language == "c++" for entry in table.values()) >= 10
    for entry in table.values():
        assert entry.input in KINDS
        assert "INPUT" in entry.run


def test_a_made_database_is_one_that_sqlite_can_query() -> None:
    with closing(sqlite3.connect(":memory:")) as database:
        database.executescript(make("sql", 20_000, 1).decode())
        assert database.execute("select count(*) from t").fetchone()[0] > 100


def test_a_made_script_is_one_that_a_shell_runs_to_its_end() -> None:
    ended = subprocess.run(["sh"], input=make("shell", 5000, 1), capture_output=True, check=True)
    assert ended.stderr == b""
    assert ended.stdout.count(b"\n") >= 5000 // 400


def test_a_made_sound_is_a_wave_of_eight_bits() -> None:
    made = make("sound", 50_000, 1)
    with wave.open(BytesIO(made)) as sound:
        assert (sound.getnchannels(), sound.getsampwidth(), sound.getframerate()) == (1, 1, 22050)
        assert len(set(sound.readframes(20_000))) > 16


def test_made_cyrillic_is_no_utf_8() -> None:
    with pytest.raises(UnicodeDecodeError):
        make("cyrillic", 500, 1).decode()
    assert "п" in make("cyrillic", 5000, 1).decode("koi8-r")


def _compared(cycles: float, factor: float, wide: float = 0.001) -> Compared:
    return Compared(cycles, Times(factor, factor - wide, factor + wide, 20, 1.0))


def test_signs_are_counted_where_the_time_differs_for_sure() -> None:
    levels = {
        "-O1": {"tune": _compared(0.9, 0.95), "held": _compared(0.9, 1.05)},
        "-Os": {"tune": _compared(0.9, 1.005), "held": _compared(0.9, 1.05, 0.06)},
    }
    tuned = {"held": _compared(0.97, 0.98)}
    lines = list(told({"p": Measured("held-out", 1.0, 8, tuned, levels=levels)}))
    assert "signs: 2 of 3 estimates agree with the time, where it differs by 1 %" in lines
    assert any("cycles × 0.9700, processor time × 0.9800" in line for line in lines)


def test_a_program_that_is_confirmed_slower_on_the_input_of_its_search_is_told_and_stays_llvm_s() -> None:
    own = _compared(1.0, 1.0)
    measured = Measured("held-out", 1.0, 8, {"tune": _compared(0.97, 1.02), "held": own}, stored=False)
    lines = list(told({"p": measured}))
    assert "p: not stored: it is confirmed to be slower on the input of the search" in lines
    assert any("geometric mean of 1: cycles × 1.0000, processor time × 1.0000" in line for line in lines)


def test_a_program_for_which_the_search_finds_nothing_is_told() -> None:
    own = _compared(1.0, 1.0)
    lines = list(told({"p": Measured("held-out", 1.0, 8, {"tune": own, "held": own}, stored=False)}))
    assert "p: not stored: the search has found nothing" in lines


def test_what_was_measured_is_kept_for_the_same_settings_alone(tmp_path: Path) -> None:
    bench = Bench("p", read_table()["bzip2"], tmp_path, tmp_path, 16, 20)
    levels = {"-O1": {"held": _compared(0.9, 0.9)}}
    measured = Measured("held-out", 1.0, 8, {"held": _compared(0.97, 0.98)}, levels=levels)
    (tmp_path / "measured.json").write_bytes(msgspec.json.encode(Kept(16, 20, measured, bench.entry)))
    assert bench.kept(("-O1",)) == measured
    assert bench.kept(()) == msgspec.structs.replace(measured, levels={})
    # There is no source to measure.
    larger = replace(bench, entry=msgspec.structs.replace(bench.entry, size=9))
    others = (replace(bench, budget=64), replace(bench, pairs=5), larger, replace(bench, profiled=True))
    for other, wanted in (*((one, ()) for one in others), (bench, ("-Os",))):
        with pytest.raises(FileNotFoundError):
            other.kept(wanted)

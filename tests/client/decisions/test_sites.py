import math
import os
from pathlib import Path
from typing import Final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policybridge_client.decisions import parse_sites, read_sites
from policybridge_core.errors import InvalidError, NotFoundError

HEAD: Final = b"policybridge-sites\t1\t00112233445566aa\tOz\tsrc/a%20b.c\t1\t2\n"
ROWS: Final = (
    b"0123456789abcdef\t1\t0\t0\tf\tf\tg%09h\t0\t0\t1\t2\t-15\t5\t10\t20\t3\t1\t2\t0\tf:1:2.3\n"
    b"1123456789abcdef\t0\t0\t0\tf\to\t\t1\t1\t0\t1\t\t\t10\t20\t3\t0\t2\t1\t\n"
)


def test_a_log_is_read_into_one_sequence_for_each_column() -> None:
    log = parse_sites(HEAD + ROWS)
    assert (log.by, log.digest, log.level, log.path) == ("site", "00112233445566aa", "Oz", "src/a b.c")
    assert (log.applied, log.of, len(log)) == (1, 2, 2)
    assert log.keys == ["0123456789abcdef", "1123456789abcdef"]
    assert log.default.tolist() == [True, False]
    assert log.taken.tolist() == log.inlined.tolist() == [False, False]
    assert (log.caller, log.origin, log.callee) == (["f", "f"], ["f", "o"], ["g\th", ""])
    assert log.location == ["f:1:2.3", ""]
    assert log.numbers["cost"][0] == -15
    assert math.isnan(log.numbers["cost"][1])
    assert log.numbers["callee_instructions"].tolist() == [20, 20]
    assert "key" not in log.numbers


def test_a_log_without_calls_is_an_empty_one() -> None:
    log = parse_sites(HEAD)
    assert len(log) == 0
    assert log.default.dtype == np.bool_
    assert log.numbers["cost"].tolist() == []


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "cut off"),
        (HEAD + ROWS[:-1], "line 3: the last line has no end, so the log was cut off"),
        (b"hello\n", "line 1: a log begins with 'policybridge-sites'"),
        (HEAD.replace(b"\t1\t", b"\t2\t", 1), "line 1: version '2' of the log is not supported; supported: 1"),
        (HEAD.replace(b"Oz", b"O7"), "line 1: a level is Oz, Os or O2, not 'O7'"),
        (HEAD.replace(b"\t2\n", b"\n"), "line 1: after the version come digest, level, path and two counts"),
        (HEAD.replace(b"\t2\n", b"\t-2\n"), "line 1: the last two words are counts"),
        (HEAD + ROWS.replace(b"\tf:1:2.3", b""), "line 2: a call has 20 words with tabs between, not 19"),
        (HEAD + ROWS.replace(b"1123", b"xxxx"), "line 3: a key is 16 hexadecimal digits, not 'xxxx456789abcdef'"),
        (HEAD + ROWS.replace(b"f\t1\t0\t0", b"f\tyes\t0\t0", 1), "line 2: default is 0 or 1, not 'yes'"),
        (HEAD + ROWS.replace(b"-15", b"dear"), "line 2: cost is a number, not 'dear'"),
    ],
)
def test_what_is_no_log_is_an_error_that_says_the_line(data: bytes, said: str) -> None:
    with pytest.raises(InvalidError) as caught:
        parse_sites(data)
    assert said in str(caught.value)


@given(st.binary(), st.integers(0, len(HEAD + ROWS)), st.integers(0, 40))
def test_hostile_bytes_give_a_log_or_an_invalid_error(noise: bytes, place: int, length: int) -> None:
    data = HEAD + ROWS
    try:
        log = parse_sites(data[:place] + noise + data[place + length :])
    except InvalidError:
        return
    assert len(log) == len(log.default) == len(log.callee)


def test_a_missing_log_and_a_pipe_are_errors_of_ours(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="there is no log of sites at"):
        read_sites(tmp_path / "sites")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InvalidError, match="is not a regular file"):
        read_sites(tmp_path / "pipe")

"""Names, paths and sizes in a repository, at their limits; a policy's numbers; which files a roll-out takes."""

from pathlib import Path

import pytest

from policybridge_core.errors import InvalidError, PreconditionError, TooLargeError
from policybridge_server.repository.aliases import read_aliases, write_aliases
from policybridge_server.repository.checks import (
    Limits,
    check_alias,
    check_files,
    check_name,
    check_path,
    is_name,
    is_number,
)
from policybridge_server.repository.numbers import NUMBERS, Numbers, begin_epoch
from policybridge_server.repository.rollout import Rollout


def test_a_name_has_up_to_100_letters_digits_and_signs_and_an_alias_is_no_number() -> None:
    for name in ("a", "9", "inlining.v2_x-y", "a" * 100):
        check_name(name)
    for name in ("", ".a", "-a", "a b", "a/b", "ä", "a" * 101):
        assert not is_name(name)
        with pytest.raises(InvalidError, match="is no name of a policy"):
            check_name(name)
        with pytest.raises(InvalidError, match="is no alias"):
            check_alias(name)
    check_alias("stable")
    with pytest.raises(InvalidError, match="not digits alone"):
        check_alias("12")
    with pytest.raises(InvalidError, match="names the newest version by itself"):
        check_alias("latest")
    assert [is_number(text) for text in ("1", "1" + "0" * 17, "0", "01", "1" + "0" * 18, "a")] == [True] * 2 + [
        False
    ] * 4


def test_a_path_has_up_to_1000_characters_of_parts_that_are_plain_names() -> None:
    longest = "/".join(["a" * 199] * 5) + "b"
    assert len(longest) == 1000
    assert str(check_path(longest)) == longest
    with pytest.raises(InvalidError, match="at most 1000 characters, not 1001"):
        check_path(f"{longest}b")
    assert check_path("variables/data-0.bin").parts == ("variables", "data-0.bin")
    for path in ("", "/a", "a/", "a//b", "../a", "a/../b", ".hidden", "a\\b", "a b", "__pycache__/a.pyc", "a" * 201):
        with pytest.raises(InvalidError):
            check_path(path)


def test_a_version_has_up_to_its_limits_of_files_and_bytes_and_plain_files_alone(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}").write_bytes(bytes(100))
    check_files(tmp_path, Limits(bytes=300, files=3))
    with pytest.raises(TooLargeError, match="more than 2 files"):
        check_files(tmp_path, Limits(bytes=300, files=2))
    with pytest.raises(TooLargeError, match=r"more than 299 bytes$"):
        check_files(tmp_path, Limits(bytes=299, files=3))
    (tmp_path / "link").symlink_to("0")
    with pytest.raises(PreconditionError, match="is a symbolic link"):
        check_files(tmp_path, Limits())


def test_aliases_are_read_as_they_were_written_and_leave_no_file_if_there_are_none(tmp_path: Path) -> None:
    write_aliases(tmp_path, {})
    write_aliases(tmp_path, {"stable": 1, "9.x": 12})
    assert read_aliases(tmp_path) == {"stable": 1, "9.x": 12}
    with pytest.raises(PreconditionError, match="70000 aliases need more than 1048576 bytes"):
        write_aliases(tmp_path, {f"alias{number}": number for number in range(70_000)})
    assert read_aliases(tmp_path) == {"stable": 1, "9.x": 12}
    write_aliases(tmp_path, {})
    assert (read_aliases(tmp_path), list(tmp_path.iterdir())) == ({}, [])


def test_the_numbers_of_a_policy_begin_at_0_and_stay_while_its_folder_does(tmp_path: Path) -> None:
    begun = begin_epoch(tmp_path, [], None)
    assert (begun.highest, begun.earlier, begun.folder) == (0, {}, tmp_path.stat().st_ino)
    assert begin_epoch(tmp_path, [1, 2], begun) == begun == NUMBERS.read(tmp_path)
    assert begin_epoch(tmp_path, [2, 7, 3], None).highest == 7


def test_a_copy_of_a_repository_begins_an_epoch_above_the_numbers_that_it_knows(tmp_path: Path) -> None:
    known = Numbers("first", 5, folder=-1, dropped={"zero": [9]})
    copy = begin_epoch(tmp_path, [1, 3], known)
    assert copy.epoch != "first"
    assert (copy.highest, copy.earlier, copy.dropped, copy.folder) == (
        5,
        {"first": 5},
        {"zero": [9]},
        tmp_path.stat().st_ino,
    )
    assert begin_epoch(tmp_path, [1, 8], known).highest == 8
    assert NUMBERS.read(tmp_path) != copy


def test_a_number_belongs_to_the_epoch_in_which_it_was_given() -> None:
    numbers = Numbers("third", 9, {"first": 3, "second": 6}, {"first": [8]})
    assert [numbers.epoch_of(number) for number in (3, 4, 6, 7)] == ["first", "second", "second", "third"]
    had = {
        (number, epoch)
        for epoch in ("first", "second", "third", "unknown")
        for number in range(1, 12)
        if numbers.had(number, epoch)
    }
    expected = {(number, "first") for number in (1, 2, 3, 8)}
    expected |= {(number, "second") for number in range(1, 7)} | {(number, "third") for number in range(1, 10)}
    assert had == expected
    later = numbers.next_epoch(9, 12)
    assert (later.highest, later.earlier) == (12, {"first": 3, "second": 6, "third": 9})
    assert numbers.next_epoch(9, 4).highest == 9


def test_a_roll_out_takes_its_share_of_the_files_and_more_when_it_grows() -> None:
    files = [f"{number}.c" for number in range(4000)]
    few, more = (Rollout(version=2, base=1, alias="latest", share=share) for share in (0.1, 0.5))
    taken = {file for file in files if few.takes("p", file)}
    assert 320 <= len(taken) <= 480
    larger = {file for file in files if more.takes("p", file)}
    assert 1850 <= len(larger) <= 2150
    assert taken < larger
    whole = Rollout(version=2, base=1, alias="latest", share=1.0)
    assert all(whole.takes("p", file) for file in files)
    assert not whole.takes("p", ""), "without a file a session would change from version to version"
    assert {file for file in files if few.takes("q", file)} != taken


def test_latest_names_no_version_that_is_on_its_way_or_was_withdrawn() -> None:
    def held(alias: str, state: str, withdrawn: tuple[int, ...] = ()) -> list[int]:
        rollout = Rollout(
            version=5,
            base=3,
            alias=alias,
            share=0.5,
            state=state,  # type: ignore[arg-type]
            withdrawn=withdrawn,
        )
        return [number for number in range(1, 8) if rollout.holds_back(number)]

    assert held("latest", "running") == [4, 5]
    assert held("latest", "withdrawn", (2,)) == [2, 4, 5]
    assert held("latest", "promoted", (4,)) == [4]
    assert held("stable", "running", (1,)) == [1]

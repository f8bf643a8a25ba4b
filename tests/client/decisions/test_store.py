import os
import stat
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policybridge_client.decisions import (
    ALL_FUNCTIONS,
    Decision,
    Heading,
    PassChoice,
    Section,
    Store,
    format_store,
    function_key,
    parse_store,
    path_in_store,
    read_store,
    update_store,
    write_store,
)
from policybridge_core.errors import InvalidError, NotFoundError, PolicyBridgeError

DIGEST: Final = "00112233445566aa"
TEXT: Final = b"""\
policybridge-decisions 1
module llvm=22 level=Oz by=site digest=00112233445566aa path=src/a%20b.cpp
00d1c2a34b5e6f70 inline _Z4mainv _ZN1a1bEv
10d1c2a34b5e6f70 call %25odd%0A x
module llvm=22 level=Os by=sequence digest=- path=src/c.c
8a9bacbdcedfe0f1.2 call f g
8a9bacbdcedfe0f1.10 inline f g
"""


def section(path: str = "a.c", digest: str | None = None, llvm: int = 22, *decisions: Decision) -> Section:
    heading = Heading(llvm, "Oz", "site", digest, path)
    return Section(heading, decisions or (Decision("0123456789abcdef", True, "f", "g"),))


def test_a_store_is_read_as_it_was_written() -> None:
    store = parse_store(TEXT)
    first, second = store.sections
    assert first.heading == Heading(22, "Oz", "site", DIGEST, "src/a b.cpp")
    assert first.decisions[1] == Decision("10d1c2a34b5e6f70", False, "%odd\n", "x")
    assert first.answers == {"00d1c2a34b5e6f70": True, "10d1c2a34b5e6f70": False}
    assert second.heading == Heading(22, "Os", "sequence", None, "src/c.c")
    assert format_store(store) == TEXT


def test_sections_are_written_by_path_and_decisions_by_key_so_that_diffs_are_small() -> None:
    decisions = [Decision("8a9bacbdcedfe0f1.10", True), Decision("8a9bacbdcedfe0f1.9", True)]
    store = Store([Section(Heading(22, "Oz", "sequence", None, "b.c"), decisions), section("a.c")])
    assert format_store(store).decode().splitlines()[1:] == [
        "module llvm=22 level=Oz by=site digest=- path=a.c",
        "0123456789abcdef inline f g",
        "module llvm=22 level=Oz by=sequence digest=- path=b.c",
        "8a9bacbdcedfe0f1.9 inline",
        "8a9bacbdcedfe0f1.10 inline",
    ]


@given(st.binary(), st.binary(), st.binary(min_size=1))
def test_names_and_paths_of_any_bytes_come_back(caller: bytes, callee: bytes, path: bytes) -> None:
    decision = Decision("0123456789abcdef", False, os.fsdecode(caller), os.fsdecode(callee))
    store = Store([section(os.fsdecode(path), DIGEST, 19, decision)])
    written = format_store(store)
    assert parse_store(written) == Store([section(os.fsdecode(path), DIGEST, 19, decision)])
    assert written.count(b"\n") == 3


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"", "x.db is empty; a store begins with the line 'policybridge-decisions 1'"),
        (b"\x7fELF\0\n", "x.db, line 1: a store begins with"),
        (b"policybridge-decisions 2\n", "line 1: version 2 of the format is not supported; supported: 1"),
        (TEXT[:-1], "the last line has no end, so the file was cut off"),
        (TEXT[: TEXT.rindex(b"\n", 0, -1) + 5], "cut off"),
        (TEXT.replace(b"llvm=22", b"llvm=", 1), "line 2: llvm= is LLVM's major version, such as 22, not ''"),
        (TEXT.replace(b"level=Oz", b"level=O9"), "line 2: a level is Oz, Os or O2, not 'O9'"),
        (TEXT.replace(b"by=site", b"by=guess"), "line 2: decisions are by site or sequence, not by 'guess'"),
        (TEXT.replace(b"digest=0", b"digest=?"), "line 2: a digest is 16 hexadecimal digits, or -"),
        (TEXT.replace(b" path=src/c.c", b""), "line 5: a module line says llvm=, level=, by=, digest= and path=; here"),
        (TEXT.replace(b"00d1c2a34b5e6f70", b"00D1"), "line 3: a key by site is 16 hexadecimal digits, not '00D1'"),
        (TEXT.replace(b"f1.2 ", b"f1 "), "line 6: a key by sequence is 16 hexadecimal digits followed by .N"),
        (
            TEXT.replace(b" call %25", b" maybe %25"),
            "line 4: after the key comes inline, call, skip, add, set or keep, not 'maybe'",
        ),
        (TEXT.replace(b"module", b"<<<<<<< HEAD\nmodule", 1), "line 2: '<<<<<<< HEAD' is a conflict of a merge"),
        (TEXT.replace(b"module", b"modul", 1), "line 2: before the first decision comes a line 'module llvm=…'"),
        (TEXT.replace(b"\n", b"\r\n"), "line 1: a store begins with 'policybridge-decisions 1', not with"),
        (b"policybridge-decisions 1\n" + b"A" * 100_000 + b"\n", "AAA…'"),
    ],
)
def test_what_is_no_store_is_an_error_that_says_the_line_and_what_would_be_right(text: bytes, said: str) -> None:
    with pytest.raises(InvalidError) as caught:
        parse_store(text, "x.db")
    assert said in str(caught.value)
    assert str(caught.value).startswith("x.db")
    assert len(str(caught.value)) < 300


PASSES: Final = b"""\
policybridge-decisions 1
module llvm=22 level=Oz by=site digest=- path=a.c
00d1c2a34b5e6f70 inline f g
9f86d081884c7d65 add early-cse<memssa>@last t%20est
9f86d081884c7d65 keep early-machinelicm t%20est
9f86d081884c7d65 set ext-tsp t%20est
9f86d081884c7d65 skip SimplifyCFGPass.2 t%20est
e3b0c44298fc1c14 add iroutliner@last
e3b0c44298fc1c14 skip early-machinelicm
"""


def test_choices_of_passes_stand_behind_the_decisions_about_inlining_and_come_back() -> None:
    store = parse_store(PASSES)
    assert format_store(store) == PASSES
    made = store.sections[0]
    assert made.decisions == (Decision("00d1c2a34b5e6f70", True, "f", "g"),)
    assert made.passes[3] == PassChoice("9f86d081884c7d65", "skip", "SimplifyCFGPass.2", "t est")
    assert made.passes[5] == PassChoice(ALL_FUNCTIONS, "skip", "early-machinelicm")
    assert (function_key("test"), function_key("")) == ("9f86d081884c7d65", ALL_FUNCTIONS)
    lines = PASSES.split(b"\n")
    # Reversed, and with a line twice, as a merge may leave them.
    assert format_store(parse_store(b"\n".join([*lines[:2], *reversed(lines[2:-1]), lines[3], b""]))) == PASSES
    assert Store().with_section(Section(made.heading, (), made.passes)).sections


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            b"skip early-machinelicm",
            b"skip LCSSAPass",
            "line 9: LCSSAPass is never skipped: later loop passes need its form",
        ),
        (b"skip early", b"skip x\xff", "line 9: no pass that may be skipped is called"),
        (b"Pass.2", b"Pass.", "line 7: behind a pass comes nothing, or a dot and which of its runs"),
        (b"Pass.2", b"Pass.1000000", "line 7: behind a pass comes nothing, or a dot and which of its runs"),
        (b"memssa>@last", b"memssa>", "line 4: passes that may be added are one of the documented pipelines"),
        (b"iroutliner@last", b"gvn-sink@last", "line 8: gvn-sink is never added: it orders values by their addresses"),
        (b"outliner@last", b"outliner@early", "line 8: iroutliner is added @last alone"),
        (b"e3b0c44298fc1c14 add", b"00d1c2a34b5e6f70 add", "line 8: iroutliner is added to a module"),
        (b"ext-tsp", b"ext", "line 6: no switch is called 'ext'"),
        (b"ext-tsp", b"ipra", "line 6: ipra is never set: callers cannot tell which registers change"),
        (b"keep early-machinelicm", b"keep nothing", "line 5: no pass that may be skipped is called 'nothing'"),
        (b"e3b0c44298fc1c14 skip", b"e3b0c44298fc1c14 keep", "line 9: keep exempts one function from a choice for all"),
        (b"by=site", b"by=sequence", "line 3: a key by sequence is 16 hexadecimal digits followed by .N"),
    ],
)
def test_a_choice_of_passes_that_may_not_be_made_is_an_error_that_says_why(old: bytes, new: bytes, said: str) -> None:
    with pytest.raises(InvalidError) as caught:
        parse_store(PASSES.replace(old, new), "x.db")
    assert said in str(caught.value)


def test_choices_of_passes_are_by_site_alone() -> None:
    with pytest.raises(InvalidError, match="line 6: choices of passes are by site"):
        parse_store(TEXT.replace(b"f1.2 call", b"f1.2 skip"))


@given(st.binary(), st.integers(0, len(TEXT)), st.integers(0, 40))
def test_hostile_bytes_give_a_store_or_an_invalid_error(noise: bytes, place: int, length: int) -> None:
    for text in (TEXT, PASSES):
        check_hostile(text[:place] + noise + text[place + length :])


def check_hostile(text: bytes) -> None:
    try:
        store = parse_store(text)
    except InvalidError:
        return
    assert format_store(parse_store(format_store(store))) == format_store(store)


def test_of_decisions_that_a_merge_repeated_the_first_counts() -> None:
    line = b"00d1c2a34b5e6f70 inline _Z4mainv _ZN1a1bEv\n"
    assert parse_store(TEXT.replace(line, line + line.replace(b"inline", b"call"))) == parse_store(TEXT)


def test_what_follows_the_callee_is_left_to_later_versions() -> None:
    assert parse_store(TEXT.replace(b"inline f g\n", b"inline f g and more\n")) == parse_store(TEXT)


def test_a_missing_store_an_unreadable_one_and_what_is_no_file_are_errors_of_ours(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="there is no store of decisions at"):
        read_store(tmp_path / "tuned.db")
    with pytest.raises(InvalidError, match="cannot be read"):
        read_store(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InvalidError, match="is not a regular file"):
        read_store(tmp_path / "pipe")
    with pytest.raises(PolicyBridgeError):
        read_store("nul\0byte")


def test_a_store_is_replaced_whole_and_keeps_its_permissions(tmp_path: Path) -> None:
    path = tmp_path / "tuned.db"
    write_store(Store([section()]), path)
    umask = os.umask(0o022)
    os.umask(umask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask
    path.chmod(0o640)
    before = path.stat().st_ino
    write_store(Store([section("b.c")]), path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert path.stat().st_ino != before
    assert read_store(path).sections[0].heading.path == "b.c"
    assert _names(tmp_path) == ["tuned.db"]


def test_a_store_does_not_take_the_place_of_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="it is no regular file"):
        write_store(Store([section()]), tmp_path / "pipe")
    assert (tmp_path / "pipe").is_fifo()


def test_a_store_behind_a_symbolic_link_is_replaced_where_it_is(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    link = tmp_path / "tuned.db"
    link.symlink_to(tmp_path / "real" / "kept.db")
    write_store(Store([section()]), link)
    assert link.is_symlink()
    assert read_store(tmp_path / "real" / "kept.db") == read_store(link)
    assert _names(tmp_path / "real") == ["kept.db"]


def test_a_store_that_cannot_be_written_is_left_as_it_was(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        write_store(Store(), tmp_path / "missing" / "tuned.db")
    path = tmp_path / "tuned.db"
    path.mkdir()
    with pytest.raises(IsADirectoryError):
        write_store(Store(), path)
    assert _names(tmp_path) == ["tuned.db"]


def test_processes_that_change_a_store_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "tuned.db"
    with ProcessPoolExecutor(4) as pool:
        list(pool.map(_add, [path] * 24, range(24)))
    assert [each.heading.path for each in read_store(path).sections] == sorted(f"m{n}.c" for n in range(24))


def _names(folder: Path) -> list[str]:
    return [each.name for each in folder.iterdir()]


def _add(path: Path, number: int) -> None:
    update_store(path, lambda store: store.with_section(section(f"m{number}.c")))


def test_a_new_section_replaces_that_of_the_same_source_and_an_empty_one_removes_it() -> None:
    store = Store([section("a.c", DIGEST), section("b.c")])
    changed = store.with_section(section("a.c", "f" * 16))
    assert [each.heading.digest for each in changed.sections] == [None, "f" * 16]
    twice = store.with_section(section("a.c", "f" * 16), beside=[DIGEST])
    assert [each.heading.digest for each in twice.sections] == [DIGEST, None, "f" * 16]
    assert len(store.with_section(Section(Heading(22, "Oz", "site", None, "b.c"))).sections) == 1


def test_an_empty_section_stays_beside_that_of_another_module_of_its_source_and_is_for_its_own_digest() -> None:
    tuned, empty = section("a.c", DIGEST), Section(Heading(22, "Oz", "site", "f" * 16, "a.c"))
    store = Store([tuned, section("b.c")]).with_section(empty, beside=[DIGEST, "f" * 16])
    assert empty in parse_store(format_store(store)).sections
    assert store.section_for(empty.heading) is empty
    assert store.section_for(tuned.heading) is tuned
    edited = replace(empty.heading, digest="e" * 16)
    for sections in ([tuned, empty], [empty, tuned]):
        assert Store(sections).section_for(edited) is tuned
    # By its path it would be for the others, too, and without decisions beside it for nothing.
    assert tuned in store.with_section(Section(replace(empty.heading, digest=None)), beside=[DIGEST]).sections
    assert len(store.with_section(Section(tuned.heading), beside=[DIGEST, "f" * 16]).sections) == 1


@pytest.mark.parametrize(
    ("sections", "chosen"),
    [
        ([("a.c", None, 22)], 0),
        ([("b.c", None, 22)], None),
        ([("x/src/a.c", None, 22), ("y/src/a.c", None, 22)], 1),
        ([("z/a.c", None, 22), ("y/lib/a.c", None, 22)], 0),
        ([("y/src/a.c", None, 22), ("a.c", DIGEST, 22)], 1),
        ([("other.c", DIGEST, 22)], 0),
        ([("y/src/a.c", DIGEST, 19), ("a.c", None, 22)], 1),
        ([("y/src/a.c", None, 19)], 0),
        ([], None),
    ],
    ids=["the name alone", "another name", "more of the path", "first of equals", "digest over path",
         "a moved file", "LLVM over digest", "another LLVM", "an empty store"],
)  # fmt: skip
def test_the_section_that_fits_a_compilation_best_is_chosen(
    sections: list[tuple[str, str | None, int]], chosen: int | None
) -> None:
    store = Store([section(*each) for each in sections])
    found = store.section_for(Heading(22, "Oz", "site", DIGEST, "/home/y/src/a.c"))
    assert found is (None if chosen is None else store.sections[chosen])


def test_a_section_of_another_level_or_by_other_keys_is_never_chosen() -> None:
    store = Store([section("a.c", DIGEST)])
    assert store.section_for(Heading(22, "Os", "site", DIGEST, "a.c")) is None
    assert store.section_for(Heading(22, "Oz", "sequence", DIGEST, "a.c")) is None


def test_a_section_of_link_time_is_chosen_there_alone_and_is_written_as_such() -> None:
    linked = Section(Heading(22, "Oz", "site", DIGEST, "a.c", "link"), (Decision("0123456789abcdef", True),))
    store = Store([linked, section("a.c", DIGEST)])
    assert store.section_for(Heading(22, "Oz", "site", DIGEST, "a.c", "link")) is linked
    assert store.section_for(Heading(22, "Oz", "site", DIGEST, "a.c")) is store.sections[1]
    assert f"digest={DIGEST} phase=link path=a.c\n" in format_store(store).decode()
    assert set(parse_store(format_store(store)).sections) == set(store.sections)
    assert len(store.with_section(section("a.c")).sections) == 2
    with pytest.raises(InvalidError, match="phase= is link, and absent for every other phase, not 'compile'"):
        parse_store(format_store(store).replace(b"phase=link", b"phase=compile"))


def test_a_source_below_the_store_is_named_from_there_and_another_one_absolutely(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    store = tmp_path / "tuned.db"
    assert path_in_store(tmp_path / "src" / ".." / "src" / "a b.c", store) == "src/a b.c"
    assert path_in_store("/usr/include/a.c", store) == "/usr/include/a.c"
    (tmp_path / "link").symlink_to(tmp_path / "src")
    assert path_in_store(tmp_path / "link" / "a.c", store) == "link/a.c"

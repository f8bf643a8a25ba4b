"""``policybridge corpus debian``: source packages of a real archive, which apt reads from a folder."""

import json
import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest

from policybridge_core.errors import InvalidError, NotFoundError, PreconditionError, UnavailableError
from policybridge_train.compiling.compiler import newest_compiler
from policybridge_train.corpus.bitcode import FrontEnd
from policybridge_train.corpus.debian.apt import Apt
from policybridge_train.corpus.debian.attempts import attempts
from policybridge_train.corpus.debian.command import default_list, reported
from policybridge_train.corpus.debian.package import Wanted, Workshop, read_wanted
from policybridge_train.corpus.description import Corpus
from policybridge_train.corpus.writing import CorpusWriter
from tests.training.corpus.archives import write_archive
from tests.training.corpus.projects import HELPER, MAIN, MAKEFILE, UNUSED, corpus_command, write_project

_CMAKE: Final = """cmake_minimum_required(VERSION 3.13)
project(hello CXX)
add_library(helper STATIC helper.cc)
add_executable(hello main.cc)
target_link_libraries(hello helper)
"""
_FILES: Final = {
    "withmake": {"main.c": MAIN, "h.c": HELPER, "u.c": UNUSED, "Makefile": MAKEFILE},
    "withcmake": {"CMakeLists.txt": _CMAKE, "main.cc": MAIN, "helper.cc": HELPER},
    "broken": {"Makefile": "all:\n\tgcc -c gone.c\n"},
    "endless": {"Makefile": "all:\n\tsleep 900\n"},
    "nothing": {"README": "no build"},
    "late": {"configure": "sleep 900\n", "Makefile": "all:\n\tsleep 1; gcc -c h.c\n", "h.c": HELPER},
}


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make an archive of source packages, and the configuration of a machine that knows it."""
    folder = tmp_path_factory.mktemp("an archive".replace(" ", "-"))
    folder.chmod(0o755)
    write_archive(folder, _FILES)
    return folder


def _workshop(archive: Path, tmp_path: Path, seconds: float = 300) -> Workshop:
    apt = Apt.prepare(tmp_path / "apt", archive / "etc")
    front_end = FrontEnd(newest_compiler())
    return Workshop(apt, tmp_path / "work", front_end, CorpusWriter(tmp_path / "corpus"), tmp_path / "logs", seconds)


def test_packages_are_fetched_built_and_added_with_their_programs(archive: Path, tmp_path: Path) -> None:
    workshop = _workshop(archive, tmp_path)

    rows = [workshop.process(Wanted(name)) for name in ("withmake", "withcmake")]
    corpus = workshop.writer.write()

    assert [(row.built, row.modules, row.failed, row.remark) for row in rows] == [
        ("make", 3, 0, ""),
        ("cmake", 2, 0, ""),
    ]
    assert {(module.project, module.source, module.language) for module in corpus.modules} == {
        *(("withmake", source, "c") for source in ("main.c", "h.c", "u.c")),
        *(("withcmake", source, "c++") for source in ("main.cc", "helper.cc")),
    }
    assert {(program.project, Path(program.name).name, len(program.modules)) for program in corpus.programs} == {
        *(("withmake", "prog", 2), ("withmake", "lib.so", 2), ("withmake", "libx.a", 2)),
        *(("withcmake", "hello", 2), ("withcmake", "libhelper.a", 1)),
    }
    assert not list((tmp_path / "work").iterdir())


def test_the_report_of_packages_is_a_table_or_json_with_the_corpus(
    archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    workshop = _workshop(archive, tmp_path)
    rows = [workshop.process(Wanted(name)) for name in ("withmake", "nothing")]
    status = reported(iter(rows), workshop.writer, json=True)
    told = json.loads(capsys.readouterr().out)
    assert (status, told["modules"], told["projects"]["withmake"]["modules"]) == (0, 3, {"c": 3})
    assert [(row["package"], row["built"], row["modules"]) for row in told["packages"]] == [
        ("nothing", "", 0),
        ("withmake", "make", 3),
    ]
    assert "nothing that we can build" in told["packages"][0]["remark"]

    assert reported(iter(rows[1:]), workshop.writer, json=False) == 1
    assert "nothing" in capsys.readouterr().out


def test_the_same_package_gives_the_same_modules_wherever_it_is_built(archive: Path, tmp_path: Path) -> None:
    digests = []
    for name in ("one", "another"):
        workshop = _workshop(archive, tmp_path / name)
        workshop.process(Wanted("withcmake"))
        digests.append({module.name: module.digest for module in workshop.writer.write().modules})

    assert digests[0] == digests[1]


def test_what_cannot_be_built_is_a_row_with_its_reason(archive: Path, tmp_path: Path) -> None:
    workshop = _workshop(archive, tmp_path, seconds=2)

    rows = {name: workshop.process(Wanted(name)) for name in ("broken", "endless", "nothing", "absent")}
    corpus = workshop.writer.write()

    assert all(row.modules == 0 for row in rows.values())
    assert "make ended with status 2" in rows["broken"].remark
    assert "takes longer" in rows["endless"].remark
    assert "no CMake, configure, Makefile" in rows["nothing"].remark
    assert "no archive of apt's has a source package 'absent'" in rows["absent"].remark
    assert set(corpus.failures) == set(rows)
    assert "gone.c" in (tmp_path / "logs" / "broken.log").read_text()


def test_a_build_that_takes_too_long_leaves_the_next_one_all_its_time(archive: Path, tmp_path: Path) -> None:
    row = _workshop(archive, tmp_path, seconds=5).process(Wanted("late"))

    assert (row.built, row.modules) == ("make", 1)
    log = (tmp_path / "logs" / "late.log").read_text()
    assert log.index("./configure") < log.index("$ make")


_BUILDS: Final = ("CMakeLists.txt", "configure", "meson.build", "Makefile")
_TOOLS: Final = ("dh", "dpkg-buildpackage", "cmake", "make", "meson")


@pytest.mark.parametrize(
    ("files", "tools", "names"),
    [
        (_BUILDS, _TOOLS, ["debian", "cmake", "configure", "meson", "make"]),
        (_BUILDS, _TOOLS[1:], ["cmake", "configure", "meson", "make"]),
        (_BUILDS, ["dh", "cmake"], ["cmake"]),
        (_BUILDS[-1:], _TOOLS, ["debian", "make"]),
    ],
    ids=["all", "without debhelper", "cmake alone", "a Makefile"],
)
def test_a_packages_own_build_comes_first_and_alone_has_debians_patches(
    files: Sequence[str], tools: Sequence[str], names: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_project(tmp_path / "source", dict.fromkeys(files, "") | {"debian/rules": "%:\n\tdh $@\n"})
    for name in tools:
        write_project(tmp_path / "bin", {name: ""}).joinpath(name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))

    found = list(attempts(source, ()))

    assert [attempt.name for attempt in found] == names
    assert [attempt.name for attempt in found if attempt.patched] == [name for name in names if name == "debian"]


def test_a_machine_without_an_archive_is_told_so(tmp_path: Path) -> None:
    write_project(tmp_path / "etc", {"sources.list": "# nothing\n", "sources.list.d/odd.save": "deb http://x y z"})

    with pytest.raises(PreconditionError, match="names no archive"):
        Apt.prepare(tmp_path / "apt", tmp_path / "etc")


def test_an_archive_that_cannot_be_reached_is_told_so(tmp_path: Path) -> None:
    stanza = "Types: deb deb-src\nURIs: http://127.0.0.1:9/debian\nSuites: stable\nComponents: main\n"
    write_project(tmp_path / "etc", {"sources.list.d/here.sources": stanza})

    with pytest.raises(UnavailableError, match="offline"):
        Apt.prepare(tmp_path / "apt", tmp_path / "etc")


def test_sources_that_are_disabled_are_not_asked(tmp_path: Path) -> None:
    disabled = "Types: deb\nURIs: http://127.0.0.1:9/x\nSuites: stable\nComponents: main\nEnabled: no\n"
    write_project(tmp_path / "etc", {"sources.list.d/off.sources": disabled})

    with pytest.raises(PreconditionError, match="names no archive"):
        Apt.prepare(tmp_path / "apt", tmp_path / "etc")


@pytest.mark.parametrize("name", ["../x", "-x", "A", "a b/c"])
def test_a_name_that_is_no_package_s_is_a_clear_error(name: str) -> None:
    with pytest.raises(InvalidError, match="no name of a source package"):
        read_wanted([name])


def test_a_list_has_options_and_comments() -> None:
    rows = read_wanted(["# comment", "", "re2 -DX=1 -DY=2  # why", "zlib"])

    assert rows == [Wanted("re2", ("-DX=1", "-DY=2")), Wanted("zlib")]


def test_the_default_list_is_well_formed() -> None:
    assert len(default_list()) >= 30


def test_keeping_the_trees_needs_a_folder_for_them(tmp_path: Path) -> None:
    ended = corpus_command("debian", "--output", "corpus", "--keep", "zlib", cwd=tmp_path)

    assert ended.returncode == 2
    assert "--work" in ended.stderr


@pytest.mark.parametrize("words", [["--work", "work"], ["--work", "work", "--keep"], ["--build-dependencies"]])
def test_a_folder_for_builds_is_of_no_use_where_nodes_build(tmp_path: Path, words: list[str]) -> None:
    ended = corpus_command("debian", "--output", "corpus", "--ray", "auto", *words, "zlib", cwd=tmp_path)

    assert ended.returncode == 2
    assert "without --ray" in ended.stderr


def test_a_corpus_can_be_opened_after_every_package(archive: Path, tmp_path: Path) -> None:
    workshop = _workshop(archive, tmp_path)
    workshop.process(Wanted("withmake"))
    workshop.writer.write()

    assert len(Corpus.open(tmp_path / "corpus").modules) == 3
    with pytest.raises(NotFoundError):
        Corpus.open(tmp_path / os.devnull)


def test_giving_up_ends_a_build_and_all_its_processes(archive: Path, tmp_path: Path) -> None:
    workshop = _workshop(archive, tmp_path, seconds=900)
    log = tmp_path / "logs" / "endless.log"
    with ThreadPoolExecutor(1) as executor:
        row = executor.submit(workshop.process, Wanted("endless"))
        until = time.monotonic() + 300
        while not (log.exists() and "sleep 900" in log.read_text()):
            assert time.monotonic() < until
            time.sleep(0.02)
        workshop.stop()

        assert "given up" in row.result(300).remark
    assert not list((tmp_path / "work").iterdir())


def test_a_package_that_succeeds_at_last_is_no_failure_any_more(archive: Path, tmp_path: Path) -> None:
    workshop = _workshop(archive, tmp_path)
    workshop.writer.fail("withmake", "the network was away")
    workshop.writer.write()

    workshop.process(Wanted("withmake"))

    assert not workshop.writer.write().failures

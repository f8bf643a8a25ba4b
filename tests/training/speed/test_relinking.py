"""Linking a program again by the build's own command."""

import re
import subprocess
from pathlib import Path

import pytest

from policybridge_core.errors import NotFoundError, PreconditionError
from policybridge_train.compiling.limits import Limits
from policybridge_train.corpus.notes import BuildCommand
from policybridge_train.processes.process import Running
from policybridge_train.speed.relinking import Relinking
from tests.native.llvm.plugins import need

_SOURCES = {
    "main.c": "int one(void); int two(void); int three(void);\nint main(void) { return one() + two() + three(); }\n",
    "a/util.c": "int one(void) { return 1; }\n",
    "b/util.c": "int two(void) { return 2; }\n",
    "three.c": "int three(void) { return 3; }\n",
    "other.c": "int three(void) { return 30; }\n",
}
_BUILD = [
    *(f"gcc -c {name} -o {name[:-2]}.o" for name in ("a/util.c", "b/util.c", "three.c", "other.c")),
    "ar rcs libhelp.a a/util.o b/util.o three.o",
    "gcc -x c main.c -x none -L . -lhelp -o prog",
]


@pytest.fixture
def commands(tmp_path: Path) -> list[BuildCommand]:
    need("gcc")
    for name, text in _SOURCES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    for command in _BUILD:
        subprocess.run(command.split(), cwd=tmp_path, check=True)
    return [BuildCommand(tmp_path, words[0], tuple(words[1:])) for words in map(str.split, _BUILD)]


def _names(folder: Path) -> dict[Path, str]:
    objects = {folder / f"{name}.o": name for name in ("a/util", "b/util", "three", "other")}
    return {**objects, folder / "prog-main.c": "main"}


def test_a_program_is_linked_with_changed_objects_also_those_of_an_archive(
    tmp_path: Path, commands: list[BuildCommand]
) -> None:
    relinking = Relinking.of(tmp_path / "prog", commands, _names(tmp_path))
    subprocess.run(["gcc", "-c", "main.c", "-o", "main.o"], cwd=tmp_path, check=True)
    changed = {"three": tmp_path / "other.o", "main": tmp_path / "main.o"}
    before = (tmp_path / "libhelp.a").read_bytes()
    made, work = tmp_path / "made", tmp_path / "work"
    work.mkdir()
    relinking.link(changed, made, work, Limits(), Running())
    assert subprocess.run([made], check=False).returncode == 33
    assert subprocess.run([tmp_path / "prog"], check=False).returncode == 6
    assert (tmp_path / "libhelp.a").read_bytes() == before


def test_objects_of_one_name_in_an_archive_are_not_changed(tmp_path: Path, commands: list[BuildCommand]) -> None:
    relinking = Relinking.of(tmp_path / "prog", commands, _names(tmp_path))
    assert set(relinking.modules) == {"main", "three"}


def test_what_the_build_did_not_link_or_compile_is_refused_with_the_programs_that_it_links(
    tmp_path: Path, commands: list[BuildCommand], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path.parent)
    known = f"({tmp_path.name}/prog)"
    with pytest.raises(
        NotFoundError, match=re.escape(f"which the build did not link: run a program that it links {known}")
    ):
        Relinking.of(tmp_path / "a script", commands, _names(tmp_path))
    with pytest.raises(PreconditionError, match="compiled no source"):
        Relinking.of(tmp_path / "prog", commands, {})


def test_a_program_that_the_linker_itself_linked_is_refused_with_its_name(tmp_path: Path) -> None:
    commands = [BuildCommand(tmp_path, "ld.lld-22", ("main.o", "-o", "prog"))]
    with pytest.raises(NotFoundError, match=r"which the build links by ld\.lld-22 itself: link it by the compiler"):
        Relinking.of(tmp_path / "prog", commands, {tmp_path / "main.o": "main"})


def test_archives_of_one_name_in_two_folders_are_both_changed(tmp_path: Path) -> None:
    need("gcc")
    build = ["gcc -c main.c -o main.o"]
    (tmp_path / "main.c").write_text("int one(void); int two(void); int main(void) { return one() + two(); }\n")
    changed = {}
    for number, name in enumerate(("one", "two"), 1):
        (tmp_path / name).mkdir()
        (tmp_path / name / "f.c").write_text(f"int {name}(void) {{ return {number}; }}\n")
        (tmp_path / f"{name}.c").write_text(f"int {name}(void) {{ return {10 * number}; }}\n")
        build += [f"gcc -c {name}/f.c -o {name}/f.o", f"ar rcs {name}/lib.a {name}/f.o"]
        subprocess.run(["gcc", "-c", f"{name}.c"], cwd=tmp_path, check=True)
        changed[name] = tmp_path / f"{name}.o"
    build.append("gcc main.o one/lib.a two/lib.a -o prog")
    for command in build:
        subprocess.run(command.split(), cwd=tmp_path, check=True)
    commands = [BuildCommand(tmp_path, words[0], tuple(words[1:])) for words in map(str.split, build)]
    names = {tmp_path / "main.o": "main", tmp_path / "one" / "f.o": "one", tmp_path / "two" / "f.o": "two"}
    relinking = Relinking.of(tmp_path / "prog", commands, names)
    work = tmp_path / "work"
    work.mkdir()
    relinking.link(changed, tmp_path / "made", work, Limits(), Running())
    assert subprocess.run([tmp_path / "made"], check=False).returncode == 30


@pytest.mark.parametrize(
    "linking", ["gcc", "gcc -Wl,--gc-sections", "clang-22 -fuse-ld=lld -Wl,--gc-sections,--icf=all -flto"]
)
def test_code_is_moved_by_space_before_it(linking: str, tmp_path: Path) -> None:
    need(linking.partition(" ")[0])
    (tmp_path / "main.c").write_text("int main(void) { return 7; }\n")
    words = [*linking.split(), "-O2", "main.c", "-o", str(tmp_path / "prog")]
    subprocess.run(words, cwd=tmp_path, check=True)
    names = {tmp_path / "prog-main.c": "main"}
    relinking = Relinking.of(tmp_path / "prog", [BuildCommand(tmp_path, words[0], tuple(words[1:]))], names)

    def address(space: int) -> int:
        made = tmp_path / f"made-{space}"
        relinking.link({}, made, tmp_path, Limits(), Running(), space=space)
        assert subprocess.run([made], check=False).returncode == 7
        headers = subprocess.run(["readelf", "-lW", made], capture_output=True, text=True, check=True).stdout
        assert next(line for line in headers.splitlines() if "GNU_STACK" in line).split()[-2] == "RW"
        found = subprocess.run(["nm", made], capture_output=True, text=True, check=True).stdout
        return next(int(line.split()[0], 16) for line in found.splitlines() if line.endswith(" T main"))

    assert [address(space) - address(0) for space in (16, 1616)] == [16, 1616]


def _archived(folder: Path, library: str, ar: str = "rcs") -> Relinking:
    """Build a program that ends with 3, of a library with one object and one that is no module's."""
    need("gcc")
    (folder / "main.c").write_text("int three(void); int four(void); int main(void) { return three() * four(); }\n")
    for name, text in (("three", _SOURCES["three.c"]), ("four", "int four(void) { return 1; }\n")):
        (folder / f"{name}.c").write_text(text)
    (folder / "other.c").write_text(_SOURCES["other.c"])
    build = [f"gcc -c {name}.c" for name in ("main", "three", "four", "other")]
    build += [f"ar {ar} libhelp.a three.o four.o", f"gcc main.o {library} -o prog"]
    for command in build:
        subprocess.run(command.split(), cwd=folder, check=True)
    commands = [BuildCommand(folder, words[0], tuple(words[1:])) for words in map(str.split, build)]
    return Relinking.of(folder / "prog", commands, {folder / "main.o": "main", folder / "three.o": "three"})


@pytest.mark.parametrize(
    "library",
    [
        "-L . -l help",
        "-L. -l:libhelp.a",
        "-L. -Xlinker -lhelp",
        "-L. -Wl,-l,help",
        "-Wl,--start-group,libhelp.a,--end-group",
        "-Wl,-whole-archive -Xlinker libhelp.a -Wl,-no-whole-archive",
    ],
)
def test_a_changed_library_is_linked_however_the_command_names_it(library: str, tmp_path: Path) -> None:
    relinking, work = _archived(tmp_path, library), tmp_path / "a,work"
    work.mkdir()
    relinking.link({"three": tmp_path / "other.o"}, tmp_path / "made", work, Limits(), Running())
    assert subprocess.run([tmp_path / "made"], check=False).returncode == 30


def test_a_program_of_a_thin_archive_is_linked_with_changed_objects(tmp_path: Path) -> None:
    relinking, work = _archived(tmp_path, "libhelp.a", ar="rcsT"), tmp_path / "work"
    before, own = (tmp_path / "libhelp.a").read_bytes(), (tmp_path / "three.o").read_bytes()
    assert before.startswith(b"!<thin>")
    work.mkdir()
    relinking.link({"three": tmp_path / "other.o"}, tmp_path / "made", work, Limits(), Running())
    assert subprocess.run([tmp_path / "made"], check=False).returncode == 30
    assert ((tmp_path / "libhelp.a").read_bytes(), (tmp_path / "three.o").read_bytes()) == (before, own)


@pytest.mark.parametrize("option", ["-Wl,-Map=beside", "-Wl,-Map,beside", "-Xlinker -Map -Xlinker beside"])
def test_files_that_a_link_writes_beside_the_program_stay_as_they_are(option: str, tmp_path: Path) -> None:
    relinking = _archived(tmp_path, f"libhelp.a {option}")
    before, work = (tmp_path / "beside").read_bytes(), tmp_path / "work"
    work.mkdir()
    relinking.link({"three": tmp_path / "other.o"}, tmp_path / "made", work, Limits(), Running())
    assert subprocess.run([tmp_path / "made"], check=False).returncode == 30
    assert (tmp_path / "beside").read_bytes() == before


@pytest.mark.parametrize(
    ("made", "left"),
    [
        ("ld -r three.o -o some.o", {"main", "other"}),
        ("cp three.o some.o", {"main", "other"}),
        ("cp three.o some.o; ar rcs some.a some.o", {"main", "other"}),
    ],
)
def test_objects_that_the_link_has_under_another_name_are_not_changed(
    made: str, left: set[str], tmp_path: Path
) -> None:
    relinking = _of_some(tmp_path, made, "main.o some.a other.o" if ".a" in made else "main.o some.o other.o")
    assert set(relinking.modules) == left


def test_a_program_of_one_relocatable_object_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        PreconditionError, match="linked of copies of its objects or archives, or of an object of ld -r"
    ):
        _of_some(tmp_path, "ld -r main.o three.o other.o -o some.o", "some.o")


def _of_some(folder: Path, made: str, linked: str) -> Relinking:
    need("gcc")
    (folder / "main.c").write_text("int three(void); int more(void); int main(void) { return three() + more(); }\n")
    (folder / "three.c").write_text("int three(void) { return 3; }\n")
    (folder / "other.c").write_text("int more(void) { return 1; }\n")
    build = [*(f"gcc -c {name}.c" for name in ("main", "three", "other")), *made.split("; "), f"gcc {linked} -o prog"]
    for command in build:
        subprocess.run(command.split(), cwd=folder, check=True)
    commands = [BuildCommand(folder, words[0], tuple(words[1:])) for words in map(str.split, build)]
    return Relinking.of(folder / "prog", commands, {folder / f"{name}.o": name for name in ("main", "three", "other")})

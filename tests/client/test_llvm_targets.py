"""The target of a compilation is that of its module, and clang is asked for it once."""

import shutil
import subprocess
from pathlib import Path

import pytest

from policybridge_client.llvm.compilers import CompilerCommand
from policybridge_client.llvm.targets import target_of
from tests.client.compilers import parameters

COMMANDS = (
    "",
    "-m32",
    "-m64 -march=x86-64-v3",
    "--target=aarch64-linux-gnu",
    "-target riscv64-linux-gnu -march=rv64gc",
    "--target=arm-none-eabi -mthumb -mcpu=cortex-m4",
    "--target=arm-none-eabi -mcpu=cortex-m4 -mbig-endian",
    "-target mips64-linux-gnu -EL",
    "-arch arm64 -target arm64-apple-macosx12",
)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def target(*words: str) -> str:
    return target_of(CompilerCommand.of([*words, "-Oz", "-c", "x.c"]))


def write_wrapper(path: Path, clang: str) -> Path:
    """Write a clang that notes each of its starts."""
    path.write_text(f'#!/bin/sh\necho "$*" >> {path}.log\nexec {shutil.which(clang)} "$@"\n')
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("clang", parameters("clang-19", "clang-22"))
@pytest.mark.parametrize("options", COMMANDS)
def test_it_is_the_architecture_of_the_module(tmp_path: Path, clang: str, options: str) -> None:
    source = tmp_path / "x.c"
    source.write_text("int f(void) { return 1; }\n")
    words = [clang, *options.split(), "-S", "-emit-llvm", "-o", "-", str(source)]
    module = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    triple = next(line for line in module.splitlines() if line.startswith("target triple")).split('"')[1]
    assert target(clang, *options.split()) == triple.partition("-")[0]


@pytest.mark.parametrize("clang", parameters("clang-22"))
def test_clang_is_asked_once_for_each_kind_of_command(tmp_path: Path, clang: str) -> None:
    wrapper = str(write_wrapper(tmp_path / "clang", clang))
    for _ in range(3):
        assert target(wrapper, "-m32") == "i386"
        assert target(wrapper, "-DX=1", "--target=aarch64-linux-gnu") == "aarch64"
    log = Path(f"{wrapper}.log").read_text().splitlines()
    assert log == ["-m32 -print-effective-triple", "--target=aarch64-linux-gnu -print-effective-triple"]


@pytest.mark.parametrize("clang", parameters("clang-22"))
def test_a_name_that_begins_with_the_target_counts(tmp_path: Path, clang: str) -> None:
    names = [tmp_path / "aarch64-linux-gnu-clang", tmp_path / "clang"]
    for name in names:
        name.symlink_to(str(shutil.which(clang)))
    assert target(str(names[0])) == "aarch64"
    assert target(str(names[1])) != "aarch64"


@pytest.mark.parametrize(
    "words",
    [
        ("clang-22", "@more.rsp"),
        ("clang-22", "--config=x.cfg"),
        ("clang-22", "--config", "x.cfg"),
        ("clang-22", "-Xclang", "-triple", "-Xclang", "aarch64-linux-gnu"),
        ("clang-22", "-cc1", "-triple", "aarch64-linux-gnu"),
        ("opt-22",),
        ("zig", "cc", "-target", "aarch64-linux-musl"),
        ("nowhere/clang",),
    ],
)
def test_where_others_may_change_it_it_is_not_known(words: tuple[str, ...]) -> None:
    assert target(*words) == ""


@pytest.mark.parametrize("said", ["", "error: unknown argument", "x86 64-linux", "A" * 8 + "-linux", "a" * 33])
def test_a_compiler_that_answers_no_architecture_is_asked_once(tmp_path: Path, said: str) -> None:
    clang = tmp_path / "clang"
    clang.write_text(f'#!/bin/sh\necho asked >> {clang}.log\necho "{said}"\n')
    clang.chmod(0o755)
    assert [target(str(clang)) for _ in range(3)] == [""] * 3
    assert Path(f"{clang}.log").read_text().splitlines() == ["asked"]


def test_a_compiler_that_cannot_be_started_is_asked_again(tmp_path: Path) -> None:
    clang = tmp_path / "clang"
    clang.write_text("#!/nowhere/sh\n")
    clang.chmod(0o755)
    assert target(str(clang)) == ""
    clang.write_text("#!/bin/sh\necho i386-linux\n")
    assert target(str(clang)) == "i386"


@pytest.mark.parametrize("clang", parameters("clang-22"))
def test_a_damaged_cache_is_asked_again(cache: Path, clang: str) -> None:
    assert target(clang, "-m32") == "i386"
    (file,) = (cache / "policybridge" / "llvm-versions").iterdir()
    for damaged in (b"", b"\xff\xfe", b"x" * 1000):
        file.write_bytes(damaged)
        assert target(clang, "-m32") == "i386"
    assert file.read_text() == "i386"

"""``policybridge size-report``: two builds by file, section and function."""

import json
import subprocess
from pathlib import Path

import pytest

from policybridge_client.cli import main
from tests.native.llvm.plugins import need

SMALL = "int grows(int v) { return v; }\nint shrinks(int v) { return v % 7 + v % 11; }\nint main(void) { return 0; }\n"
LARGE = "int grows(int v) { return v % 7 + v % 11 + v % 13; }\nint shrinks(int v) { return v; }\n"
LARGE += "const char table[4096] = {1};\nint main(void) { return table[7]; }\n"


def build(folder: Path, source: str, name: str = "program") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "a.c").write_text(source)
    words = [need("clang-22"), "-O1", "-fno-inline", str(folder / "a.c"), "-o", str(folder / name)]
    subprocess.run(words, check=True)
    return folder


@pytest.fixture
def builds(tmp_path: Path) -> tuple[str, str]:
    return str(build(tmp_path / "before", SMALL)), str(build(tmp_path / "after", LARGE))


def test_json_has_each_file_section_and_function_and_what_grew_most_first(
    builds: tuple[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["size-report", "--json", *builds]) == 0
    told = json.loads(capfd.readouterr().out)
    assert told["text"]["after"] - told["text"]["before"] > 4000
    assert [each["name"] for each in told["files"]] == ["program"]
    assert told["sections"][0]["name"] == ".rodata"
    changes = {each["name"]: each["after"] - each["before"] for each in told["functions"]}
    assert changes["program: grows"] > 0 > changes["program: shrinks"]
    assert list(changes) == sorted(changes, key=lambda name: -changes[name])


def test_markdown_has_a_table_of_each(builds: tuple[str, str], capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["size-report", "--most", "1", *builds]) == 0
    shown = capfd.readouterr().out
    assert shown.startswith("**text: ")
    for heading, row in (("file", "program"), ("section", ".rodata"), ("function that grew most", "program: grows")):
        assert f"\n| {heading} | before | after | difference |\n|---|--:|--:|--:|\n| `{row}` | " in shown


@pytest.mark.parametrize(("limit", "status"), [("1", 1), ("100000", 0)])
def test_growth_beyond_the_limit_is_the_exit_status(
    builds: tuple[str, str], limit: str, status: int, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["size-report", "--limit", limit, *builds]) == status
    assert ("and the limit is 1 %" in capfd.readouterr().err) == bool(status)
    assert main(["size-report", "--limit", "0", builds[1], builds[0]]) == 0


def test_a_program_of_one_build_alone_has_no_bytes_in_the_other(
    builds: tuple[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    build(Path(builds[1]), SMALL, "another")
    assert main(["size-report", "--json", *builds]) == 0
    files = {each["name"]: each for each in json.loads(capfd.readouterr().out)["files"]}
    assert files["another"]["before"] == 0
    assert files["another"]["after"] > 0


def test_a_folder_without_a_program_is_told_what_to_give(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["size-report", str(tmp_path), str(tmp_path)]) == 2
    assert "give the folder of a build that linked" in capfd.readouterr().err

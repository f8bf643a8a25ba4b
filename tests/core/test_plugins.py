"""Tables of parts by name."""

import json
import subprocess
import sys
from importlib.metadata import Distribution, DistributionFinder
from pathlib import Path
from zipfile import ZipFile

import pytest

from policybridge_core.errors import PreconditionError
from policybridge_core.plugins import Table


def test_a_part_whose_package_is_missing_says_what_installs_it() -> None:
    table = Table("backend", "none.of.these", {"onnx": "policybridge_nowhere.backends.onnx:Backend"})
    with pytest.raises(PreconditionError, match="the Python package 'policybridge_nowhere': pip install"):
        table.load("onnx")


def write_distribution(place: Path, group: str) -> None:
    """Add a distribution whose entry points name a part ``added``: to a folder, or as a zip file."""
    about = {"METADATA": "Metadata-Version: 2.1\nName: added\nVersion: 1.0\n"}
    about["entry_points.txt"] = f"[console_scripts]\nx = y:z\n\n[{group}]\nadded = json:loads\n"
    if place.suffix == ".zip":
        with ZipFile(place, "w") as archive:
            for name, text in about.items():
                archive.writestr(f"added-1.0.dist-info/{name}", text)
        return
    folder = place / "added-1.0.dist-info"
    folder.mkdir(parents=True)
    for name, text in about.items():
        (folder / name).write_text(text)


@pytest.mark.parametrize("place", ["folder", "archive.zip"])
def test_a_part_of_a_distribution_on_the_path_is_found_in_a_folder_and_in_an_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    write_distribution(tmp_path / place, "none.of.these")
    monkeypatch.syspath_prepend(str(tmp_path / place))
    table = Table("backend", "none.of.these", {"own": "json:dumps"})
    assert table.names() == ["added", "own"]
    assert table.load("added") is json.loads


def test_a_part_that_only_a_finder_of_its_own_finds_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_distribution(tmp_path / "elsewhere", "none.of.these")

    class Finder(DistributionFinder):
        def find_distributions(self, _: object = None) -> list[Distribution]:
            return [Distribution.at(tmp_path / "elsewhere" / "added-1.0.dist-info")]

        def find_spec(self, *_: object) -> None:
            return None

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder()])
    assert Table("backend", "none.of.these", {}).names() == ["added"]


@pytest.mark.parametrize("words", [["run", "--help"], ["policies", "list", "--help"], ["serve", "--help"]])
def test_where_no_distribution_adds_a_part_a_command_starts_without_reading_their_metadata(words: list[str]) -> None:
    program = (
        "import sys; from policybridge_client.cli import main\n"
        f"try: main({words})\nexcept SystemExit: pass\nsys.exit('importlib.metadata' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, check=False).returncode == 0

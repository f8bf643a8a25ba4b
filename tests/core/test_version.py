"""The version of the installed distribution."""

import sys
from importlib.metadata import version as installed
from pathlib import Path
from zipfile import ZipFile

import pytest

from policybridge_core.installed import find_version
from policybridge_core.version import version


def test_the_version_is_that_of_the_metadata() -> None:
    assert version() == installed("policybridge")


@pytest.mark.parametrize("described", ["other_name-2.0rc1.dist-info", "other_name-2.0-rc1.dist-info"])
def test_a_version_is_read_from_what_describes_its_distribution(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, described: str
) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path / "missing"), str(tmp_path)])
    assert find_version("other-name") is None
    (tmp_path / described).mkdir()
    assert find_version("other-name") is None
    (tmp_path / described / "METADATA").write_text("Metadata-Version: 2.1\nName: other-name\nVersion: 2.0rc1\n\nText")
    assert find_version("other-name") == "2.0rc1"
    assert find_version("other") is None


def test_a_version_in_an_archive_is_left_to_importlib_metadata(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "there.zip"
    with ZipFile(archive, "w") as packed:
        packed.writestr("there-3.dist-info/METADATA", "Metadata-Version: 2.1\nName: there\nVersion: 3\n")
    monkeypatch.setattr(sys, "path", [str(archive)])
    assert find_version("there") is None
    assert installed("there") == "3"

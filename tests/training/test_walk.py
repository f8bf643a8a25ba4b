"""How many files a step of a search and a job of a score enter, and how often they change file."""

from pathlib import Path

from tests.training.walk import walks


def test_a_step_and_a_job_enter_few_files_and_change_file_seldom(tmp_path: Path) -> None:
    own = walks(_made(tmp_path / "trainer"), "zig", None, ("training",))
    assert len(own["autotune step"].files) <= 13, own["autotune step"].files
    assert len(own["score job"].files) <= 6, own["score job"].files
    every = walks(_made(tmp_path / "whole"), "zig", None)
    assert len(every["autotune step"].files) <= 20, every["autotune step"].files
    assert every["autotune step"].changes <= 216, every["autotune step"].files
    assert every["score job"].changes <= 18, every["score job"].files


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder

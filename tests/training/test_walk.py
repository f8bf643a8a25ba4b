"""How many files a step of a search and a job of a score enter: a reader of them has to know so many."""

from pathlib import Path

from tests.training.walk import walks


def test_a_step_and_a_job_enter_few_files_of_the_trainer(tmp_path: Path) -> None:
    found = walks(tmp_path, "zig", None, ("training",))
    assert len(found["autotune step"].files) <= 19, found["autotune step"].files
    assert len(found["score job"].files) <= 10, found["score job"].files

"""What a search remembers."""

from pathlib import Path
from threading import Thread

from policybridge_train.tuning.progress import Progress
from policybridge_train.tuning.ranking import FEATURES, Label

AT_ONCE = 60.0
MANY = 2500


def _label(number: int) -> Label:
    return [float(number)] * len(FEATURES), float(-number)


def test_labels_are_given_as_they_were_added_whatever_their_number(tmp_path: Path) -> None:
    with Progress(tmp_path / "progress.db") as progress:
        assert list(progress.labels()) == []
        added = [_label(number) for number in range(MANY)]
        progress.add_labels(added)
        assert list(progress.labels()) == added


def test_labels_that_are_left_half_way_keep_nobody_from_closing(tmp_path: Path) -> None:
    progress = Progress(tmp_path / "progress.db")
    progress.add_labels([_label(1), _label(2)])
    labels = progress.labels()
    assert next(labels) == _label(1)
    closing = Thread(target=progress.close, daemon=True)
    closing.start()
    closing.join(AT_ONCE)
    assert not closing.is_alive()

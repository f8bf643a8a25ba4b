"""The export for offline reinforcement learning, read by Minari itself."""

from pathlib import Path

import numpy as np
import pytest

from tests.server.ledger.asking import rows
from tests.server.ledger.conftest import Recording
from tests.server.ledger.test_export import known, refused, sessions  # noqa: F401 - a fixture


def test_minari_loads_sessions_as_episodes(
    recording: Recording,
    known: list[str],  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    minari = pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    said = sessions(recording, "export", "--to", tmp_path / "inliner-v0", "--format", "minari", "--score", "text")
    assert said.startswith("90 decisions")
    dataset = minari.load_dataset("inliner-v0")
    assert (dataset.total_episodes, dataset.total_steps) == (3, 90)
    episodes = list(dataset)
    assert [each.rewards[-1] for each in episodes] == [100.5, 101.5, 102.5]
    asked = [*rows(20, seed=1), *rows(10, seed=11)]
    assert episodes[1].observations["f3"].reshape(-1)[:-1].tolist() == [row["f3"].item() for row in asked]
    assert episodes[1].rewards.shape == (30,)
    assert not episodes[1].rewards[:-1].any()
    assert np.flatnonzero(episodes[1].terminations).tolist() == [29]
    with recording.reader() as reader:
        (batch,) = reader.trajectory(reader.session(known[1])).batches
    assert episodes[1].actions.reshape(-1).tolist() == batch.advices["inlining_decision"].reshape(-1).tolist()
    assert [each["session"] for each in dataset.storage.get_episode_metadata(range(3))] == known
    assert "name the folder NAME-v0" in refused(recording, "export", "--to", tmp_path / "x", "--format", "minari")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["inliner-v0"]

"""Minari datasets: an episode is a session, with its features as observations of type Dict."""

from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import gymnasium
import minari
import numpy as np
from minari.data_collector import EpisodeBuffer
from minari.dataset.minari_dataset import parse_dataset_id
from minari.dataset.minari_storage import MinariStorage

from policybridge_core.errors import InvalidError
from policybridge_serdes import Layout, TensorSpec, Values
from policybridge_server.ledger.export import PART, Score, one_signature
from policybridge_server.ledger.query import Query
from policybridge_server.ledger.reader import LedgerReader
from policybridge_server.ledger.trajectory import DecisionBatch, joined

_STORED: Final = "data"
"""The folder of a dataset that holds its files; Minari wants that name."""


def export_minari(reader: LedgerReader, query: Query, target: Path, score: Score | None) -> int:
    """Write a dataset: the folder's name is its id, and Minari finds it if MINARI_DATASETS_PATH is its parent.

    The action is the advice. The reward is the session's outcome ``score`` in the last step, and 0 before. There
    is one observation more than steps, as Minari requires: the last one is repeated. The metadata of each
    episode have ``session``, ``policy`` and ``version``. A session that was interrupted is truncated, others terminate.

    Raises:
        InvalidError: the folder's name is no dataset's id, the sessions have several signatures or one that varies, or
            one lacks the outcome.
        NotFoundError: no decision matches.

    """
    name = target.name.removesuffix(PART)
    try:
        parse_dataset_id(name)
    except (TypeError, ValueError):  # TypeError if it has no version
        raise InvalidError(
            f"{name!r} is no id of a Minari dataset; name the folder NAME-v0, with letters, digits, - and _"
        ) from None
    signature, batches = one_signature(reader.batches(query))
    target.mkdir(parents=True)
    storage = MinariStorage.new(target / _STORED, _space(signature.features), _box(signature.advice))
    count = 0
    for episode in _sessions(batches):
        storage.update_episodes([_buffer(episode, score)])
        storage.update_episode_metadata([_about(episode)], [storage.total_episodes - 1])
        count += len(episode)
    told = {
        "dataset_id": name,
        "minari_version": minari.__version__,
        "requirements": [f"policybridge=={version('policybridge')}"],
    }
    storage.update_metadata(told)
    return count


def _sessions(batches: Iterator[DecisionBatch]) -> Iterator[DecisionBatch]:
    """Give the decisions of each session; one may go on in the next batch."""
    parts: list[DecisionBatch] = []
    for batch in batches:
        for index in range(len(batch.sessions)):
            part = batch.of_session(index)
            if parts and part.sessions[0].number != parts[0].sessions[0].number:
                yield joined(parts)
                parts = []
            parts.append(part)
    if parts:
        yield joined(parts)


def _buffer(episode: DecisionBatch, score: Score | None) -> EpisodeBuffer:
    count = len(episode)
    rewards, ended = np.zeros(count), np.zeros(count, np.bool_)
    if score is not None:
        rewards[-1] = score.of(episode)[-1]
    ended[-1] = True
    interrupted = episode.sessions[0].interrupted
    actions = _columns(episode.signature.advice_layout, episode.advices)[episode.signature.advice.name]
    observed = _columns(episode.signature.features, episode.observations)
    return EpisodeBuffer(
        observations={name: np.concatenate([values, values[-1:]]) for name, values in observed.items()},
        actions=actions,
        rewards=rewards,
        terminations=ended & (not interrupted),
        truncations=ended & interrupted,
    )


def _about(episode: DecisionBatch) -> dict[str, Any]:
    session = episode.sessions[0]
    return {"session": session.id, "policy": session.policy.name, "version": session.policy.version}


def _columns(layout: Layout, values: Values) -> dict[str, Any]:
    shapes = {spec.name: (len(values), *_shape(spec)) for spec in layout.specs}
    return {name: np.ascontiguousarray(values[name]).reshape(shape) for name, shape in shapes.items()}


def _space(layout: Layout) -> gymnasium.spaces.Dict:
    return gymnasium.spaces.Dict({spec.name: _box(spec) for spec in layout.specs})


def _box(spec: TensorSpec) -> gymnasium.spaces.Box:
    if not spec.fixed or spec.type.is_text:
        raise InvalidError(f"{spec}: a Minari dataset has only numeric tensors of a fixed size")
    kind = spec.type.dtype
    least, most = (0, 1) if kind.kind == "b" else (-np.inf, np.inf)
    return gymnasium.spaces.Box(least, most, _shape(spec), kind.type)


def _shape(spec: TensorSpec) -> tuple[int, ...]:
    return spec.shape or (1,)

"""Behavioural cloning: a small network that decides as the compiler does, without being told what that decides.

It shows how much the features tell. It reads the compiler's own decisions from the ledger after one compilation of the
training cases; cross-entropy, by Adam.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Final

import msgspec
import numpy as np
from msgspec import Meta

from policybridge_serdes import PolicyVersion
from policybridge_train.learning.network import Layer, Network, Scaling, inputs_of, yes_no_features
from policybridge_train.learning.perceptron import Perceptron
from policybridge_train.learning.training import Training

_DESCRIPTION: Final = "A small network that has learnt the compiler's own decisions"


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What ``--set`` sets.

    Attributes:
        epochs: how often all decisions are learnt from.
        batch: decisions in a step.
        rate: of learning.

    """

    epochs: Annotated[int, Meta(ge=1)] = 20
    batch: Annotated[int, Meta(ge=1)] = 256
    rate: Annotated[float, Meta(gt=0)] = 1e-3


def train(training: Training, settings: Settings) -> None:
    """Publish the compiler's own decisions as iteration 0, and the network that has learnt them as iteration 1."""
    if training.record.iterations():
        return
    task = training.task
    features = yes_no_features(task)
    own = _own(training, features)
    training.finish(0, own, training.validate(own))
    seen = list(training.collector.collect(training.training, training.asking(own, purpose="training")))
    training.compiles += len(seen)
    rows = inputs_of(seen, features)
    answers = np.concatenate([np.zeros(0, bool), *(each.advice != 0 for each in seen)])
    scaling = Scaling.of(rows)
    # The network sees 0 in place of the compiler's decision, always, so that it does not scale the others either.
    scaling.deviation[features.index(task.default)] = np.inf
    network = Perceptron(len(features), settings.rate, training.seed)
    network.imitate(scaling(rows), np.zeros(len(rows), np.float32), answers, settings.epochs, settings.batch)
    agreed = (network.scores(scaling(rows)) > 0) == answers
    training.say(f"{100 * agreed.mean():.2f} % of {len(answers):,} decisions are the compiler's own")
    version = _publish(training, Network(features, "", 0.0, scaling, network.layers()))
    training.finish(1, version, training.validate(version), {"agreement": float(agreed.mean())})


def _own(training: Training, features: Sequence[str]) -> PolicyVersion:
    """Publish the compiler's own decisions: a network of zeros that leans towards them."""
    nothing: Any = np.zeros((1, len(features), 1), np.float32)
    layer = Layer(nothing, np.zeros((1, 1, 1), np.float32))
    scaling = Scaling(np.zeros(len(features), np.float32), np.ones(len(features), np.float32))
    return _publish(training, Network(features, training.task.default, 1.0, scaling, [layer]))


def _publish(training: Training, network: Network) -> PolicyVersion:
    return training.publish({"model.onnx": network.to_onnx()}, network.config(training.task, _DESCRIPTION))

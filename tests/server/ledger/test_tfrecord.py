"""The export for ml-compiler-opt's trainer, read by TensorFlow itself."""

import subprocess
import sys
from pathlib import Path

import numpy as np

from policybridge_bench.network import SIGNATURE
from policybridge_client.connection import connect
from policybridge_serdes import (
    ElementType,
    Exploration,
    Outcome,
    PolicyReference,
    SessionOptions,
    Signature,
    TensorSpec,
)
from tests.frameworks import require
from tests.server.ledger.asking import ask, rows
from tests.server.ledger.conftest import Recording
from tests.server.ledger.test_export import sessions

require("tensorflow")

import tensorflow as tf  # noqa: E402


def test_tensorflow_reads_features_advice_rewards_and_log_probabilities_of_each_trajectory(
    recording: Recording, tmp_path: Path
) -> None:
    options = SessionOptions("module.c", labels={"for": "tensorflow"}, exploration=Exploration(temperature=2.0, seed=1))
    signature = Signature(SIGNATURE.features, TensorSpec("choice", ElementType.INT64))
    session = connect(recording.server.socket).open(PolicyReference("scores"), signature, options)
    asked = rows(5, seed=4)
    advices = np.frombuffer(ask(session, asked), np.int64)
    session.context("größer")
    ask(session, rows(3, seed=5))
    session.report(Outcome({"text": -7.5}))
    session.close()
    arguments = ("--label", "for=tensorflow", "--format", "tfrecord", "--score", "text")
    assert sessions(recording, "export", "--to", tmp_path / "t", *arguments).startswith("8 decisions")

    lists = {
        spec.name: tf.io.FixedLenSequenceFeature(spec.shape, spec.type.dtype.type)
        for spec in (*signature.features.specs, signature.advice)
    }
    lists |= {name: tf.io.FixedLenSequenceFeature((), tf.float32) for name in ("reward", "log_probability")}
    context = {name: tf.io.FixedLenFeature((), tf.string) for name in ("session", "policy", "module")}
    context["version"] = tf.io.FixedLenFeature((), tf.int64)
    # TensorFlow checks the checksum of each record.
    first, second = (
        tf.io.parse_single_sequence_example(record, context, lists)
        for record in tf.data.TFRecordDataset(str(tmp_path / "t"))
    )
    told = {name: value.numpy() for name, value in first[0].items()}
    assert told == {"session": session.id.encode(), "policy": b"scores", "module": b"module.c", "version": 1}
    assert second[0]["module"].numpy().decode() == "größer"
    assert len(second[1]["reward"]) == 3
    for spec in SIGNATURE.features.specs:
        expected = np.stack([row[spec.name][0] for row in asked])
        assert np.array_equal(first[1][spec.name].numpy(), expected)
    assert first[1]["choice"].numpy().reshape(-1).tolist() == advices.tolist()
    assert first[1]["reward"].numpy().tolist() == [-7.5] * 5
    assert (first[1]["log_probability"].numpy() < 0).all()


def test_where_the_checksums_package_is_missing_the_command_that_installs_it_is_named() -> None:
    script = (
        "import sys; sys.modules['google_crc32c'] = None\n"
        "from policybridge_server.ledger.export import FORMATS\n"
        "FORMATS.load('tfrecord')"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "pip install 'policybridge[tfrecord]'" in done.stderr

"""Clients of the Open Inference Protocol ask bundled policies without saying which advice they give."""

import json
import urllib.request
from collections.abc import Iterator

import pytest

from tests.serving import started


@pytest.fixture(scope="module")
def http() -> Iterator[str]:
    with started("--demo", "--http", "127.0.0.1:0") as (_, (address,)):
        yield address.replace("http:", "http://", 1)


@pytest.mark.parametrize(
    ("policy", "sent", "advice"),
    [
        ("inlining-default", ("inlining_default", "INT64", [1]), ("inlining_decision", [1])),
        ("evict-first-legal", ("mask", "INT64", [0, 0, 1, 1]), ("index_to_evict", [2])),
        ("priority-by-size", ("li_size", "FP32", [12.5]), ("priority", [12.5])),
    ],
)
def test_a_bundled_policy_is_asked_by_its_features_alone(
    http: str, policy: str, sent: tuple[str, str, list[float]], advice: tuple[str, list[float]]
) -> None:
    feature, datatype, data = sent
    given = {"name": feature, "datatype": datatype, "shape": [len(data)], "data": data}
    request = urllib.request.Request(
        f"{http}/v2/models/{policy}/infer",
        json.dumps({"inputs": [given]}).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as reply:
        (output,) = json.loads(reply.read())["outputs"]
    assert (output["name"], output["data"]) == advice

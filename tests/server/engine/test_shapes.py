"""Leading dimensions of 1 may be left out, also beside strings and dimensions that vary."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from policybridge_client import ElementType, TensorSpec, open_runner
from tests.repositories import answering, write_python

VALUES: dict[ElementType, Any] = {ElementType.FLOAT: 1.5, ElementType.STRING: "a", ElementType.BYTES: b"\0\xff"}


@pytest.mark.parametrize("kind", list(VALUES))
@pytest.mark.parametrize(
    ("sent", "declared"),
    [((1,), ()), ((), (1,)), ((1, 3), (3,)), ((3,), (1, 3)), ((1, -1), (-1,)), ((-1,), (1, -1))],
)
def test_a_policy_sees_its_own_shapes_and_a_client_gets_its_own(
    tmp_path: Path, kind: ElementType, sent: tuple[int, ...], declared: tuple[int, ...]
) -> None:
    toml = f"""
        features = [
            {{name = "x", type = "{kind.value}", shape = {list(declared)}}},
            {{name = "callee", type = "string", shape = []}},
        ]
        advice = {{name = "same", type = "{kind.value}", shape = {list(declared)}}}
        """
    ranks = f"observation['x'].ndim == {len(declared)} and observation['callee'].ndim == 0"
    write_python(tmp_path, "same", answering(f"observation['x'] if {ranks} else None"), toml)
    features = [TensorSpec("x", kind, sent), TensorSpec("callee", ElementType.STRING)]
    values = np.full([abs(size) for size in sent], VALUES[kind], kind.dtype)
    with open_runner(
        f"inprocess:{tmp_path}", policy="same", features=features, advice=TensorSpec("same", kind, sent)
    ) as runner:
        runner["x"], runner["callee"] = values, "main"
        given = np.asarray(runner.evaluate(), kind.dtype)
    assert given.reshape(-1).tolist() == values.reshape(-1).tolist()
    assert given.shape == (() if sent == (1,) and not kind.is_text else values.shape)

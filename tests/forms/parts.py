"""Forms for tests: of bundled policies, of random networks, and written by hand."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from policybridge_forms import Aggregate, Feature, Forest, Form, Function, Head, Instruction, Opcode, Operand, Space
from policybridge_forms.content import Content
from policybridge_serdes import ElementType, PolicyReference, TensorSpec, Values
from policybridge_server.forms.making import forms_of
from policybridge_server.repository import BUNDLED, Repository, StoredVersion

FLOAT: Final = np.dtype("<f4")
INT64: Final = np.dtype("<i8")

TREES: Final = Forest(
    FLOAT,
    2,
    1,
    Aggregate.SUM,
    np.array([5, 1], np.uint32),
    np.array([1, 3, 0, 0, 0, 0], np.uint8),
    np.array([0, 1, 1, 1, 1, 1], np.uint32),
    np.array([2.5, -1, 0, 0, 0, 0], FLOAT),
    np.zeros(4, np.uint32),
    np.array([10, 20, 30, 0.25], FLOAT),
)
"""A tree of two splits, x[0] > 2.5 and then x[1] > -1, and a tree of one leaf."""

SMALL: Final = Content(
    bytes(range(32)),
    [
        Feature(TensorSpec("x", ElementType.INT64, (1,)), 0),
        Feature(TensorSpec("y", ElementType.INT64, (1,)), 8, np.array([7])),
    ],
    16,
    16,
    np.array([0.5, 0], FLOAT).tobytes(),
    [TREES],
    [
        Instruction(
            Opcode.MAP, Function.CAST, Operand(Space.WORK, FLOAT, 0), (Operand(Space.OBSERVATION, INT64, 0),), (2, 1)
        ),
        Instruction(
            Opcode.FOREST, Function.PLAIN, Operand(Space.WORK, FLOAT, 8), (Operand(Space.WORK, FLOAT, 0),), (0,)
        ),
        Instruction(
            Opcode.MAP,
            Function.ADD,
            Operand(Space.WORK, FLOAT, 12),
            (Operand(Space.WORK, FLOAT, 8), Operand(Space.CONSTANTS, FLOAT, 0)),
            (1, 0, 0),
        ),
    ],
    Operand(Space.WORK, FLOAT, 12),
    TensorSpec("score", ElementType.FLOAT, (1,)),
    Head(),
)
"""Two features, a cast, two trees, a sum."""


def changed(place: int, **parts: Any) -> Content:
    """Give `SMALL` with other parts of the instruction ``place``."""
    instructions = list(SMALL.instructions)
    instructions[place] = replace(instructions[place], **parts)
    return replace(SMALL, instructions=instructions)


def with_trees(**parts: Any) -> Content:
    """Give `SMALL` with other parts of its forest."""
    return replace(SMALL, forests=[replace(TREES, **parts)])


def stored(reference: str, repository: Path | None = None) -> StoredVersion:
    """Give a version of a repository, or of the bundled policies."""
    return Repository([repository or BUNDLED]).resolve(PolicyReference.parse(reference))


def forms(reference: str, repository: Path | None = None) -> Mapping[str, Form]:
    """Make the forms of a version, and read them again from their bytes."""
    return {kind: Form.read(each.data) for kind, each in forms_of(stored(reference, repository)).items()}


def records(form: Form, observations: Values) -> npt.NDArray[Any]:
    """Give observations in the form's record."""
    made = np.zeros(len(observations), form.record)
    for each in form.content.features:
        made[each.spec.name] = observations[each.spec.name].reshape(made[each.spec.name].shape)
    return made


def same(one: Sequence[npt.NDArray[Any]], other: Sequence[npt.NDArray[Any]]) -> bool:
    """Whether arrays have the same bits."""
    return all(
        left.dtype == right.dtype and left.tobytes() == right.tobytes() for left, right in zip(one, other, strict=True)
    )

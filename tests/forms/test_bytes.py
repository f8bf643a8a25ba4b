"""The bytes of forms: what is written is read again, and what lies is refused before anything is computed."""

import hashlib
import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from policybridge_core.errors import InvalidError, PolicyBridgeError, TooLargeError
from policybridge_forms import Form, Function, Head, Opcode, Operand, Scores, Space
from policybridge_forms.codec import write
from policybridge_forms.content import Content
from policybridge_forms.words import MOST_BYTES
from policybridge_serdes import ElementType, TensorSpec
from tests.forms.parts import FLOAT, INT64, SMALL, changed, forms, with_trees

WORK: Space = Space.WORK


def test_a_form_is_written_as_it_was_read() -> None:
    for reference in ("inliner", "size", "inliner-imitation"):
        for form in forms(reference).values():
            assert write(Form.read(form.data).content) == form.data


def test_the_form_of_a_policy_is_the_same_each_time() -> None:
    assert forms("size")["pass_choice"].data == forms("size")["pass_choice"].data


def test_the_bytes_of_the_format_stay_as_they_are() -> None:
    data = Form.of(SMALL).data
    assert len(data) == 448
    assert hashlib.sha256(data).hexdigest() == "33d260555feb05c44f5bceca479c8ef6f1b4d890076ff4bb90bfdbb7e0768e93"


def test_a_form_has_the_digest_of_its_version_and_one_of_its_own() -> None:
    form = Form.of(SMALL)
    assert form.digest == f"sha256:{bytes(range(32)).hex()}"
    assert form.name == f"sha256:{hashlib.sha256(form.data).hexdigest()}"


def test_a_form_that_is_cut_anywhere_is_refused() -> None:
    data = Form.of(SMALL).data
    for size in range(len(data)):
        with pytest.raises(InvalidError):
            Form.read(data[:size])


def test_a_form_with_bytes_behind_it_is_refused() -> None:
    with pytest.raises(InvalidError, match="says that it has 448 bytes, and has 449"):
        Form.read(Form.of(SMALL).data + b"\0")


def test_a_form_with_any_byte_changed_decides_or_is_refused() -> None:
    data, random = Form.of(SMALL).data, np.random.default_rng(0)
    read = 0
    for place in range(len(data)):
        for value in (0, 1, 0x7F, 0xFF, int(random.integers(256))):
            hostile = data[:place] + bytes([value]) + data[place + 1 :]
            try:
                form = Form.read(hostile)
            except PolicyBridgeError:
                continue
            assert write(form.content) == hostile
            form.decide(np.zeros(2, form.record))
            read += 1
    assert read > 100


@pytest.mark.parametrize(
    ("offset", "value", "said"),
    [
        (0, b"\x89PBF\n\n\x1a\n", "are no form of a policy"),
        (8, struct.pack("<I", 2), "the form is of version 2; this program reads version 1"),
        (48, struct.pack("<I", 1 << 31), "bytes of an observation; at most"),
        (52, struct.pack("<I", 1 << 31), "bytes of tensors; at most"),
        (56, struct.pack("<I", (1 << 32) - 1), "ends within its constants"),
        (60, struct.pack("<I", (1 << 32) - 1), "features; at most"),
        (64, struct.pack("<I", (1 << 32) - 1), "forests; at most"),
        (68, struct.pack("<I", (1 << 32) - 1), "instructions; at most"),
        (72, struct.pack("<I", 9), "has the kind of scores 9"),
        (80, struct.pack("<II", 0, 1), "has the mask 0, 1"),
        (88, b"\3", "has the space 3"),
        (89, b"\x0b", "has the element type 11"),
    ],
)
def test_a_header_that_lies_is_refused_and_told(offset: int, value: bytes, said: str) -> None:
    data = Form.of(SMALL).data
    with pytest.raises(PolicyBridgeError, match=said):
        Form.read(data[:offset] + value + data[offset + len(value) :])


def test_more_bytes_than_any_form_has_are_refused_unread() -> None:
    with pytest.raises(TooLargeError, match="at most"):
        Form.read(bytes(MOST_BYTES + 1))


def _head(choices: int, mask: int | None, advice: ElementType = ElementType.INT64) -> Content:
    spec = TensorSpec("choice", advice, (1,))
    return replace(SMALL, head=Head(Scores.LOGITS, choices, mask), advice=spec)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (lambda: with_trees(sizes=np.array([4, 2], np.uint32)), "an even number of nodes"),
        (lambda: with_trees(sizes=np.array([5, 3], np.uint32)), "nodes outside its trees"),
        (lambda: with_trees(kinds=np.array([0, 3, 0, 1, 0, 0], np.uint8)), "a node before its parent"),
        (lambda: with_trees(kinds=np.array([1, 0, 0, 0, 0, 0], np.uint8)), "do not have two children each"),
        (lambda: with_trees(kinds=np.array([1, 2, 0, 0, 0, 0], np.uint8)), "neither leaf nor split"),
        (lambda: with_trees(links=np.array([0, 2, 1, 1, 1, 1], np.uint32)), "a column that there is not"),
        (lambda: with_trees(links=np.array([0, 1, 2, 0, 1, 1], np.uint32)), "a leaf without one weight"),
        (lambda: with_trees(links=np.array([0, 1, 9, 1, 1, 1], np.uint32)), "weights outside its leaves"),
        (lambda: with_trees(owners=np.array([0, 0, 1, 0], np.uint32)), "a target that there is not"),
        (lambda: with_trees(thresholds=np.array([np.nan, 0, 0, 0, 0, 0], FLOAT)), "a threshold that is NaN"),
        (lambda: with_trees(targets=0), "has no targets"),
        (lambda: with_trees(dtype=INT64), "of no float type"),
        (lambda: with_trees(columns=3), "reads what nothing has written"),
        (lambda: changed(0, sizes=(1 << 20, 0)), "beyond its space"),
        (lambda: changed(0, sizes=(1 << 30, 0)), "more than 4194304 steps"),
        (lambda: changed(0, sizes=(2, (1 << 31) - 1)), "steps"),
        (lambda: changed(0, sizes=(1 << 31, 0)), "a size of 2³¹ or more"),
        (lambda: changed(0, sizes=(2, 1, 1)), "inputs, sizes and numbers"),
        (lambda: changed(0, function=Function.ELU), "inputs, sizes and numbers"),
        (lambda: changed(0, function=Function.SUM), "has the function SUM"),
        (lambda: changed(0, output=Operand(WORK, FLOAT, 12)), "beyond its space"),
        (lambda: changed(0, output=Operand(WORK, FLOAT, 2)), "at no multiple of its size"),
        (lambda: changed(0, output=Operand(Space.CONSTANTS, FLOAT, 0)), "writes to what cannot change"),
        (lambda: changed(0, function=Function.NEGATIVE), "computes float32 of int64"),
        (lambda: changed(1, sizes=(1,)), "forest 1, which there is not"),
        (lambda: changed(1, function=Function.CAST), "has the function CAST"),
        (lambda: changed(1, output=Operand(WORK, FLOAT, 4)), "reads what it writes"),
        (lambda: changed(2, inputs=(Operand(WORK, FLOAT, 12), Operand(WORK, FLOAT, 8))), "nothing has written"),
        (lambda: changed(2, function=Function.ELU, numbers=(1.0,)), "inputs, sizes and numbers"),
        (lambda: changed(2, opcode=Opcode.PICK, function=Function.PLAIN, sizes=(1, 1)), "a table that is no constant"),
        (lambda: replace(SMALL, result=Operand(WORK, INT64, 8)), "result has the type int64"),
        (lambda: replace(SMALL, result=Operand(WORK, FLOAT, 16)), "beyond its space"),
        (lambda: replace(SMALL, features=[*SMALL.features, SMALL.features[0]]), "one name twice"),
        (lambda: replace(SMALL, features=[replace(SMALL.features[1], offset=4)]), "at a multiple of its size"),
        (lambda: replace(SMALL, features=[replace(SMALL.features[1], offset=16)]), "do not lie in the observation"),
        (lambda: replace(SMALL, features=[SMALL.features[1], SMALL.features[0]]), "overlaps the one before"),
        (lambda: _head(0, None), "has 0 choices"),
        (lambda: _head(1, 2), "a mask that is no feature"),
        (lambda: _head(2, 1), "a mask of 1 elements for 2 choices"),
        (lambda: _head(2, None), "nothing has written|beyond its space"),
        (lambda: _head(300, None, ElementType.INT8), "no room for 300 choices"),
        (lambda: _head(1, None, ElementType.FLOAT), "is no integer"),
        (lambda: replace(SMALL, head=Head(mask=0)), "takes the result as the advice"),
    ],
)
def test_a_form_that_breaks_a_rule_is_refused_and_told(content: Callable[[], Content], said: str) -> None:
    with pytest.raises(PolicyBridgeError, match=said):
        Form.read(write(content()))


@pytest.mark.parametrize("count", [2, (1 << 14) - 1])
def test_many_dear_instructions_are_refused_by_their_steps(count: int) -> None:
    dear: dict[str, Any] = {"function": Function.ERF, "sizes": (1 << 15, 0), "inputs": (Operand(WORK, FLOAT, 0),)}
    first = replace(SMALL.instructions[0], output=Operand(WORK, FLOAT, 0))
    each = replace(first, output=Operand(WORK, FLOAT, 64), **dear)
    content = replace(SMALL, work=1 << 20, instructions=[first, *[each] * count])
    with pytest.raises(TooLargeError, match="takes more than"):
        Form.read(write(content))

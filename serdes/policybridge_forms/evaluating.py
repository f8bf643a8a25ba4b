"""Decisions by a form in numpy, many observations at once; each as if it were alone."""

from collections.abc import Callable, Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from policybridge_forms import arithmetic
from policybridge_forms.content import Content, plain
from policybridge_forms.drawing import Drawing
from policybridge_forms.functions import FUNCTIONS
from policybridge_forms.parts import Forest, Instruction, Operand, Scores, Space
from policybridge_forms.words import Aggregate, Function, Opcode

Array = npt.NDArray[Any]


class Status(IntEnum):
    """The outcome of one decision."""

    OK = 0
    NAN = 1
    NO_LEGAL_CHOICE = 2
    ILLEGAL_CHOICE = 3
    BAD_INDEX = 4


SAID: Final = MappingProxyType(
    {
        Status.NAN: "the policy gave NaN, or a negative probability",
        Status.NO_LEGAL_CHOICE: "the mask allows no choice at all",
        Status.ILLEGAL_CHOICE: "the policy's own choice is not legal",
        Status.BAD_INDEX: "an index is beyond its table",
    }
)


class Evaluator:
    """Evaluates a form that was checked.

    Args:
        content: of the form.

    """

    def __init__(self, content: Content) -> None:
        self._content = content
        constants = np.frombuffer(content.constants, np.uint8).reshape(1, -1)
        self._constants = np.require(constants, requirements=["A"])
        self._walks = [_Walk(forest) for forest in content.forests]

    def decide(self, observations: Array) -> tuple[Array, npt.NDArray[np.uint8]]:
        """Give the advice of each record, shape [n, elements], and its `Status`; without OK the advice is 0."""
        result, status = self.scores(observations)
        return self._chosen(result, status, self._legal(observations))

    def draw(self, observation: Array, drawing: Drawing) -> tuple[Array, npt.NDArray[np.uint8], float]:
        """Decide as `decide` does about one record, and draw the choice; give its log-probability, too."""
        result, status = self.scores(observation)
        legal, head = self._legal(observation), self._content.head
        advice, status = self._chosen(result, status, legal)
        if status[0]:
            return advice, status, 0.0
        best = int(advice[0, 0])
        if head.scores is Scores.CHOICE:
            scores = np.where(np.arange(head.choices) == best, 0.0, -np.inf)
        else:
            scores = result[0].astype(np.float64)
            if head.scores is Scores.PROBABILITIES:
                scores = arithmetic.log(scores)
        advice[0, 0], log_probability = drawing.draw(scores, legal[0], best)
        return advice, status, log_probability

    def _legal(self, observations: Array) -> npt.NDArray[np.bool_]:
        content, head = self._content, self._content.head
        if head.mask is None:
            return np.ones((len(observations), head.choices), np.bool_)
        mask = observations[content.features[head.mask].spec.name].reshape(len(observations), -1)
        return np.asarray(mask != 0, np.bool_)

    def _chosen(
        self, result: Array, status: npt.NDArray[np.uint8], legal: npt.NDArray[np.bool_]
    ) -> tuple[Array, npt.NDArray[np.uint8]]:
        """Give the advice of each result before the head, and its status."""
        content, head = self._content, self._content.head
        advice = np.zeros((len(result), content.advice.count), plain(content.advice.type.dtype))
        if head.scores is Scores.ADVICE:
            status = _later(status, np.isnan(result).any(axis=1) if result.dtype.kind == "f" else False, Status.NAN)
            advice[status == 0] = result[status == 0]
            return advice, status
        if head.scores is Scores.CHOICE:
            chosen = result[:, 0].astype(np.int64)
            status = _later(status, ~legal.any(axis=1), Status.NO_LEGAL_CHOICE)
            inside = (chosen >= 0) & (chosen < head.choices)
            chosen = np.where(inside, chosen, 0)
            fine = inside & legal[np.arange(len(chosen)), chosen]
            status = _later(status, ~fine, Status.ILLEGAL_CHOICE)
        else:
            wrong = np.isnan(result) | ((result < 0) & (head.scores is Scores.PROBABILITIES))
            status = _later(status, (wrong & legal).any(axis=1), Status.NAN)
            status = _later(status, ~legal.any(axis=1), Status.NO_LEGAL_CHOICE)
            chosen = _best(result, legal)
        advice[:, 0] = np.where(status == 0, chosen, 0)
        return advice, status

    def scores(self, observations: Array) -> tuple[Array, npt.NDArray[np.uint8]]:
        """Give the result of each record before the head, shape [n, elements], and its `Status`: OK or BAD_INDEX."""
        content = self._content
        records = np.ascontiguousarray(observations, content.record)
        size = len(records)
        given = records.view(np.uint8).reshape(size, content.observation) if content.observation else _none(size)
        run = _Run((self._constants, given, np.zeros((size, content.work), np.uint8)), self._walks)
        with np.errstate(all="ignore"):
            for each in content.instructions:
                _STEPS[each.opcode](run, each)
        result = run.rows(content.result, content.results)
        return np.broadcast_to(result, (size, content.results)).copy(), run.status


def _none(size: int) -> Array:
    return np.zeros((size, 0), np.uint8)


def _later(status: npt.NDArray[np.uint8], wrong: Any, code: Status) -> npt.NDArray[np.uint8]:
    """Set a status where there is none yet."""
    return np.where((status == 0) & wrong, code, status).astype(np.uint8)


def _best(scores: Array, legal: Array) -> Array:
    """Give the first of the best legal choices."""
    best = np.full(len(scores), scores.shape[1], np.int64)
    top = np.zeros(len(scores), scores.dtype)
    for place in range(scores.shape[1]):
        better = legal[:, place] & ((best == scores.shape[1]) | (scores[:, place] > top))
        best, top = np.where(better, place, best), np.where(better, scores[:, place], top)
    return best


class _Run:
    """The spaces of some decisions.

    Attributes:
        status: of each.
        walks: the forests.

    """

    def __init__(self, spaces: tuple[Array, Array, Array], walks: list["_Walk"]) -> None:
        self._spaces = spaces
        self.walks = walks
        self.status = np.zeros(len(spaces[Space.WORK]), np.uint8)

    def rows(self, operand: Operand, count: int) -> Array:
        """Give the elements of an operand: shape [n, count]; [1, count] of a constant."""
        dtype = plain(operand.dtype)
        space = self._spaces[operand.space]
        end = operand.offset + count * dtype.itemsize
        if not count:
            return np.zeros((len(space), 0), dtype)
        part = space[:, operand.offset : end]
        if operand.space is Space.OBSERVATION and space.shape[1] % dtype.itemsize:
            part = np.ascontiguousarray(part)
        return part.view(dtype)

    def strided(self, operand: Operand, dims: tuple[int, ...], strides: tuple[int, ...]) -> Array:
        """Give elements by their strides: shape [n, *dims]."""
        last = sum((dim - 1) * stride for dim, stride in zip(dims, strides, strict=True)) + 1
        rows = self.rows(operand, last)
        steps = tuple(stride * rows.itemsize for stride in strides)
        return np.lib.stride_tricks.as_strided(rows, (len(rows), *dims), (rows.strides[0], *steps), writeable=False)

    def write(self, operand: Operand, values: Array) -> None:
        """Write elements, shape [n or 1, ...]."""
        flat = values.reshape(len(values), -1)
        self.rows(operand, flat.shape[1])[...] = flat


def _map(run: _Run, each: Instruction) -> None:
    if not each.count:
        return
    inputs = [
        run.strided(operand, each.dims, strides) for operand, strides in zip(each.inputs, each.strides, strict=True)
    ]
    run.write(each.output, FUNCTIONS[each.function](inputs, each.output.dtype, each.numbers))


def _pick(run: _Run, each: Instruction) -> None:
    count, size = each.sizes
    x, (places,) = run.rows(each.inputs[0], size), run.rows(each.inputs[1], count)
    run.write(each.output, x[:, places])


def _gather(run: _Run, each: Instruction) -> None:
    outer, size, inner, count = each.sizes
    data = run.rows(each.inputs[0], outer * size * inner).reshape(-1, outer, size, inner)
    at = run.rows(each.inputs[1], count).astype(np.int64)
    bad = (at < -size) | (at >= size)
    run.status[np.broadcast_to(bad.any(axis=1), run.status.shape)] = Status.BAD_INDEX
    if not size:
        return
    at = np.where(bad, 0, np.where(at < 0, at + size, at))
    rows = np.arange(max(len(data), len(at)))[:, None]
    made = data[rows if len(data) > 1 else 0, :, at]
    run.write(each.output, made.transpose(0, 2, 1, 3))


def _place(run: _Run, each: Instruction) -> None:
    outer, size, step = each.sizes
    if not outer * size:
        return
    x = run.rows(each.inputs[0], outer * size).reshape(-1, outer, size)
    out = run.rows(each.output, (outer - 1) * step + size)
    for row in range(outer):
        out[:, row * step : row * step + size] = x[:, row]


def _multiply(run: _Run, each: Instruction) -> None:
    rows, inner, columns, *strides = each.sizes
    if not rows * columns:
        return
    out = each.output.dtype
    total = np.zeros((1, rows, columns), out)
    if inner:
        left = run.strided(each.inputs[0], (rows, inner), (strides[0], strides[1]))
        right = run.strided(each.inputs[1], (inner, columns), (strides[2], strides[3]))
        for k in range(inner):
            total = total + left[:, :, k, None] * right[:, k, None, :]
    run.write(each.output, total)


def _grouped(run: _Run, each: Instruction) -> Array:
    groups, size = each.sizes
    return run.rows(each.inputs[0], groups * size).reshape(-1, groups, size)


def _reduce(run: _Run, each: Instruction) -> None:
    x = _grouped(run, each)
    extreme = each.function in (Function.MAXIMUM, Function.MINIMUM)
    all_ = x[:, :, 0] if extreme else np.zeros_like(x[:, :, 0])
    for place in range(x.shape[2]):
        one = x[:, :, place]
        if each.function is Function.MAXIMUM:
            all_ = np.where(one > all_, one, all_)
        elif each.function is Function.MINIMUM:
            all_ = np.where(one < all_, one, all_)
        else:
            all_ = all_ + one
    run.write(each.output, all_ / x.dtype.type(x.shape[2]) if each.function is Function.MEAN else all_)


def _argument(run: _Run, each: Instruction) -> None:
    x = _grouped(run, each)
    best, top = np.zeros(x.shape[:2], np.int64), x[:, :, 0]
    for place in range(x.shape[2]):
        one = x[:, :, place]
        better = one > top if each.function is Function.MAXIMUM else one < top
        best, top = np.where(better, place, best), np.where(better, one, top)
    run.write(each.output, best)


def _softmax(run: _Run, each: Instruction) -> None:
    x = _grouped(run, each)
    most = x[:, :, 0]
    for place in range(x.shape[2]):
        most = np.where(x[:, :, place] > most, x[:, :, place], most)
    below = (x - most[:, :, None]).astype(np.float64)
    powers = arithmetic.exp(below)
    total = np.cumsum(powers, axis=2)[:, :, -1:]
    if each.function is Function.LOGARITHM:
        run.write(each.output, (below - arithmetic.log(total)).astype(x.dtype))
    else:
        run.write(each.output, (powers / total).astype(x.dtype))


def _normalise(run: _Run, each: Instruction) -> None:
    groups, size, *steps = each.sizes
    x = run.rows(each.inputs[0], groups * size).reshape(-1, groups, size)
    wide = x.astype(np.float64)
    mean = np.cumsum(wide, axis=2)[:, :, -1:] / float(size)
    apart = wide - mean
    spread = np.cumsum(apart * apart, axis=2)[:, :, -1:] / float(size)
    made = (apart / arithmetic.sqrt(spread + each.numbers[0])).astype(x.dtype)
    scale, *bias = (
        run.strided(operand, (size,), (step,))[:, None] for operand, step in zip(each.inputs[1:], steps, strict=True)
    )
    made = made * scale
    run.write(each.output, made + bias[0] if bias else made)


def _forest(run: _Run, each: Instruction) -> None:
    walk = run.walks[each.sizes[0]]
    run.write(each.output, walk.scores(run.rows(each.inputs[0], walk.forest.columns)))


class _Walk:
    """A forest whose trees are walked together."""

    def __init__(self, forest: Forest) -> None:
        self.forest = forest
        self._first = forest.first_children()
        self._begins = forest.begins()
        self._steps = max(forest.depths(), default=0)
        self._splits = (forest.kinds & 1).astype(np.bool_)
        self._columns = np.where(self._splits, forest.links, 0)

    def scores(self, x: Array) -> Array:
        """Give the scores of each row of columns, shape [n, targets]."""
        forest = self.forest
        at = np.broadcast_to(forest.starts, (len(x), len(forest.sizes)))
        rows = np.arange(len(x))[:, None]
        for _ in range(self._steps):
            seen = x[rows, self._columns[at]] if forest.columns else np.zeros(at.shape, x.dtype)
            second = (seen > forest.thresholds[at]) | ((forest.kinds[at] == 3) & np.isnan(seen))
            at = self._first[at] + (second & self._splits[at])
        if forest.targets > 1:
            return self._several(at)
        return self._joined(forest.weights[self._begins[at]])[:, np.newaxis]

    def _several(self, leaves: Array) -> Array:
        forest, made = self.forest, np.zeros((len(leaves), self.forest.targets), self.forest.dtype)
        for row, places in enumerate(leaves):
            spans = [np.arange(self._begins[place], self._begins[place + 1]) for place in places]
            every = np.concatenate([*spans, np.zeros(0, np.int64)]).astype(np.int64)
            for target in np.unique(forest.owners[every]):
                own = every[forest.owners[every] == target]
                made[row, target] = self._joined(forest.weights[own][np.newaxis])[0]
        return made

    def _joined(self, weights: Array) -> Array:
        """Join weights in their order: shape [n, weights] gives [n]."""
        forest = self.forest
        if not weights.shape[1]:
            return np.zeros(len(weights), forest.dtype)
        if forest.aggregate in (Aggregate.MIN, Aggregate.MAX):
            made = weights[:, 0]
            for one in weights.T:
                made = np.where(one < made if forest.aggregate is Aggregate.MIN else one > made, one, made)
            return made
        # Behind a 0, as a sum begins.
        sums = np.cumsum(np.pad(weights, ((0, 0), (1, 0))), axis=1, dtype=forest.dtype)[:, -1]
        return sums / forest.dtype.type(len(forest.sizes)) if forest.aggregate is Aggregate.AVERAGE else sums


_STEPS: Final[Mapping[Opcode, Callable[[_Run, Instruction], None]]] = MappingProxyType(
    {
        Opcode.MAP: _map,
        Opcode.PICK: _pick,
        Opcode.GATHER: _gather,
        Opcode.PLACE: _place,
        Opcode.MULTIPLY: _multiply,
        Opcode.REDUCE: _reduce,
        Opcode.ARGUMENT: _argument,
        Opcode.SOFTMAX: _softmax,
        Opcode.NORMALISE: _normalise,
        Opcode.FOREST: _forest,
    }
)

"""The bounds of a form: every operand lies in its space and was written before, every decision ends within its steps.

A step is an element that an instruction touches; a function of libm counts 16, the error function 256.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import numpy as np

from policybridge_core.errors import InvalidError, TooLargeError
from policybridge_forms.content import Content
from policybridge_forms.parts import Forest, Instruction, Operand, Scores, Space
from policybridge_forms.words import BY_SERIES, MOST_AXES, MOST_STEPS, OF_LIBM, REDUCTIONS, Function, Opcode

_BOOL: Final = np.dtype(bool)
_INT64: Final = np.dtype("<i8")
_UINT32: Final = np.dtype("<u4")
_MOST: Final = 1 << 31


def check(content: Content) -> None:
    """Check a form, so that `Evaluator` can trust it.

    Raises:
        InvalidError: it breaks a rule of docs/forms.md.
        TooLargeError: a decision would take too many steps.

    """
    _check_features(content)
    for place, forest in enumerate(content.forests):
        _check_forest(forest, f"forest {place}")
    checker = _Checker(content)
    for place, instruction in enumerate(content.instructions):
        checker.add(instruction, f"instruction {place}")
    checker.end()


def spans(content: Content, each: Instruction) -> tuple[Sequence[int], int]:
    """Give how many elements of each input, and of the output, an instruction of a checked form sees."""
    _, counts, output = _RULES[each.opcode](content, each, "instruction")
    return counts, output


def _require(holds: bool, what: str, why: str) -> None:
    if not holds:
        raise InvalidError(f"the form's {what} {why}")


def _check_features(content: Content) -> None:
    names = [each.spec.name for each in content.features]
    _require(len(set(names)) == len(names), "features", "have one name twice")
    end = 0
    for each in content.features:
        what = f"feature {each.spec.name!r}"
        _require(each.offset % each.spec.type.dtype.itemsize == 0, what, "does not lie at a multiple of its size")
        _require(each.offset >= end, what, "overlaps the one before")
        end = each.offset + each.spec.size
    _require(end <= content.observation, "features", "do not lie in the observation")
    head, advice = content.head, content.advice
    if head.scores is Scores.ADVICE:
        _require(head.choices == 0 and head.mask is None, "head", "has choices, and takes the result as the advice")
        return
    _require(1 <= head.choices < _MOST, "head", f"has {head.choices} choices")
    _require(advice.count == 1 and advice.type.dtype.kind in "iu", "advice", "is no integer, and the head chooses")
    limit = np.iinfo(advice.type.dtype).max
    _require(head.choices - 1 <= limit, "advice", f"has no room for {head.choices} choices")
    if head.mask is not None:
        _require(head.mask < len(content.features), "head", "has a mask that is no feature")
        count = content.features[head.mask].spec.count
        _require(count == head.choices, "head", f"has a mask of {count} elements for {head.choices} choices")


def _check_forest(forest: Forest, what: str) -> None:
    sizes, kinds = forest.sizes.astype(np.int64), forest.kinds
    _require(forest.dtype.kind == "f", what, "is of no float type")
    _require(0 < forest.targets < _MOST and forest.columns < _MOST, what, "has no targets, or too many columns")
    _require(len(sizes) > 0, what, "has no trees")
    _require(bool((sizes % 2 == 1).all()), what, "has a tree with an even number of nodes")
    _require(int(sizes.sum()) == len(kinds), what, "has nodes outside its trees")
    _require(bool(np.isin(kinds, (0, 1, 3)).all()), what, "has a node that is neither leaf nor split")
    splits = (kinds & 1).astype(np.int64)
    # The splits up to a node have the next node among their children, so each node has its parent before it.
    ends = np.cumsum(sizes)
    places = np.arange(len(kinds)) - np.repeat(ends - sizes, sizes)
    before = np.cumsum(splits) - splits
    reached = 1 + 2 * (before - np.repeat(before[ends - sizes], sizes) + splits)
    is_last = np.isin(np.arange(len(kinds)), ends - 1)
    _require(bool((reached[is_last] == sizes).all()), what, "has a tree whose splits do not have two children each")
    _require(bool((reached > places + 1)[~is_last].all()), what, "has a node before its parent")
    inner = splits == 1
    _require(bool((forest.links[inner] < forest.columns).all()), what, "asks for a column that there is not")
    _require(not bool(np.isnan(forest.thresholds[inner]).any()), what, "has a threshold that is NaN")
    counts = forest.links[~inner].astype(np.int64)
    _require(int(counts.sum()) == len(forest.weights), what, "has weights outside its leaves")
    _require(bool((forest.owners < forest.targets).all()), what, "has a weight of a target that there is not")
    if forest.targets == 1:
        _require(bool((counts == 1).all()), what, "has one target, and a leaf without one weight")


class _Checker:
    """Follows what the instructions write."""

    def __init__(self, content: Content) -> None:
        self._content = content
        self._written = np.zeros(content.work, np.bool_)
        self._steps = 0

    def add(self, each: Instruction, what: str) -> None:
        rule = _RULES[each.opcode]
        chooses = each.opcode in (Opcode.MAP, Opcode.REDUCE, Opcode.ARGUMENT, Opcode.SOFTMAX)
        _require(chooses or each.function is Function.PLAIN, what, f"has the function {each.function.name}")
        _require(all(size < _MOST for size in each.sizes), what, "has a size of 2³¹ or more")
        _require(all(map(math.isfinite, each.numbers)), what, "has a number that is not finite")
        steps, counts, output = rule(self._content, each, what)
        self._steps += steps + output + sum(counts)
        if self._steps > MOST_STEPS:
            raise TooLargeError(f"a decision by the form takes more than {MOST_STEPS} steps")
        begin, end = self._span(each.output, output, what)
        _require(each.output.space is Space.WORK, what, "writes to what cannot change")
        for operand, count in zip(each.inputs, counts, strict=True):
            self._read(operand, count, what)
            if operand.space is Space.WORK:
                first, last = self._span(operand, count, what)
                _require(first >= end or last <= begin or first == last, what, "reads what it writes")
        if each.opcode is Opcode.PLACE:
            outer, size, step = each.sizes
            width = each.output.dtype.itemsize
            rows = np.lib.stride_tricks.as_strided(
                self._written[begin:end], (outer if output else 0, size * width), (step * width, 1)
            )
            rows[...] = True
        else:
            self._written[begin:end] = True

    def _read(self, operand: Operand, count: int, what: str) -> None:
        begin, end = self._span(operand, count, what)
        if operand.space is Space.WORK:
            _require(bool(self._written[begin:end].all()), what, "reads what nothing has written")

    def _span(self, operand: Operand, count: int, what: str) -> tuple[int, int]:
        content = self._content
        room = (len(content.constants), content.observation, content.work)[operand.space]
        end = operand.offset + count * operand.dtype.itemsize
        _require(operand.offset % operand.dtype.itemsize == 0, what, "has an operand at no multiple of its size")
        _require(end <= room, what, "has an operand beyond its space")
        return operand.offset, end

    def end(self) -> None:
        content = self._content
        result, scores, count = content.result, content.head.scores, content.results
        if scores is Scores.ADVICE:
            fits = result.dtype == content.advice.type.dtype
        else:
            fits = result.dtype.kind in ("iub" if scores is Scores.CHOICE else "f")
        _require(fits, "result", f"has the type {result.dtype}")
        if self._steps + count > MOST_STEPS:
            raise TooLargeError(f"a decision by the form takes more than {MOST_STEPS} steps")
        self._read(result, count, "result")


_Found = tuple[int, Sequence[int], int]
"""Further steps, how many elements of each input are spanned, how many of the output."""


def _shaped(each: Instruction, what: str, inputs: int, sizes: int, numbers: int = 0) -> None:
    found = (len(each.inputs), len(each.sizes), len(each.numbers))
    _require(found == (inputs, sizes, numbers), what, f"has {found} inputs, sizes and numbers")


def _same(each: Instruction, what: str, *places: int) -> None:
    dtypes = {each.output.dtype, *(each.inputs[place].dtype for place in places)}
    _require(len(dtypes) == 1, what, "has operands of types that do not fit")


def _is_function(each: Instruction, what: str, *functions: Function) -> None:
    _require(each.function in functions, what, f"has the function {each.function.name}")


def _is_float(each: Instruction, what: str) -> None:
    _require(each.output.dtype.kind == "f", what, "is of no float type")


def _steps_of(dims: Sequence[int]) -> int:
    """Give a product; beyond the steps of any form, only that it is."""
    count = 1
    for dim in dims:
        count = min(count * dim, MOST_STEPS + 1) if dim else 0
    return 0 if 0 in dims else count


def _map(_: Content, each: Instruction, what: str) -> _Found:
    inputs, numbers, rule = FUNCTIONS.get(each.function, (0, 0, ""))
    _require(inputs > 0, what, f"has the function {each.function.name}")
    axes = each.axes
    _require(1 <= axes <= MOST_AXES, what, f"has {axes} dimensions")
    _shaped(each, what, inputs, axes * (1 + inputs), numbers)
    _check_types(each, what, rule)
    count = _steps_of(each.dims)
    spans = [
        1 + sum((dim - 1) * stride for dim, stride in zip(each.dims, strides, strict=True)) if count else 0
        for strides in each.strides
    ]
    weight = 256 if each.function in BY_SERIES else 16 if each.function in OF_LIBM else 1
    # A span counts at most what the checks of its operand would touch.
    return weight * count, spans, count


def _check_types(each: Instruction, what: str, rule: str) -> None:
    kinds, out = [operand.dtype for operand in each.inputs], each.output.dtype
    fits = {
        "any": True,
        "number": len({out, *kinds}) == 1 and out.kind != "b",
        "float": len({out, *kinds}) == 1 and out.kind == "f",
        "power": out == kinds[0] and out.kind == "f",
        "tests": out == _BOOL and len(set(kinds)) == 1,
        "float tests": out == _BOOL and kinds[0].kind == "f",
        "bools": out == _BOOL and set(kinds) == {_BOOL},
        "where": kinds[0] == _BOOL and set(kinds[1:]) == {out},
    }
    _require(fits[rule], what, f"computes {out} of {', '.join(map(str, kinds))}")


def _pick(content: Content, each: Instruction, what: str) -> _Found:
    _shaped(each, what, 2, 2)
    _same(each, what, 0)
    count, size = each.sizes
    table = each.inputs[1]
    _require(table.space is Space.CONSTANTS and table.dtype == _UINT32, what, "has a table that is no constant")
    end = table.offset + 4 * count
    _require(table.offset % 4 == 0 and end <= len(content.constants), what, "has an operand beyond its space")
    places = np.frombuffer(content.constants, _UINT32, count, table.offset)
    _require(bool((places < size).all()), what, "picks beyond its input")
    return 0, (size, count), count


def _gather(_: Content, each: Instruction, what: str) -> _Found:
    _shaped(each, what, 2, 4)
    _same(each, what, 0)
    outer, size, inner, count = each.sizes
    _require(each.inputs[1].dtype.kind in "iu", what, "gathers by no integers")
    # An index is looked at for each outer row, empty ones too.
    return _steps_of((outer + 1, count)), (_steps_of((outer, size, inner)), count), _steps_of((outer, count, inner))


def _place(_: Content, each: Instruction, what: str) -> _Found:
    _shaped(each, what, 1, 3)
    _same(each, what, 0)
    outer, size, step = each.sizes
    _require(size <= step, what, "has rows that overlap")
    count = _steps_of((outer, size))
    return count, (count,), (outer - 1) * step + size if count else 0


def _multiply(_: Content, each: Instruction, what: str) -> _Found:
    _shaped(each, what, 2, 7)
    _same(each, what, 0, 1)
    _require(each.output.dtype.kind != "b", what, "multiplies matrices of bools")
    rows, inner, columns, *strides = each.sizes
    full = rows and inner and columns
    left = 1 + (rows - 1) * strides[0] + (inner - 1) * strides[1] if full else 0
    right = 1 + (inner - 1) * strides[2] + (columns - 1) * strides[3] if full else 0
    return _steps_of((rows, inner, columns)), (left, right), _steps_of((rows, columns))


def _groups(each: Instruction, what: str) -> tuple[int, int]:
    _shaped(each, what, 1, 2)
    groups, size = each.sizes
    _require(size > 0, what, "has empty groups")
    return groups, _steps_of((groups, size))


def _reduce(_: Content, each: Instruction, what: str) -> _Found:
    groups, count = _groups(each, what)
    _is_function(each, what, *REDUCTIONS)
    _same(each, what, 0)
    _is_float(each, what)
    return 0, (count,), groups


def _argument(_: Content, each: Instruction, what: str) -> _Found:
    groups, count = _groups(each, what)
    _is_function(each, what, Function.MAXIMUM, Function.MINIMUM)
    _require(each.output.dtype == _INT64, what, "gives no int64")
    return 0, (count,), groups


def _softmax(_: Content, each: Instruction, what: str) -> _Found:
    count = _groups(each, what)[1]
    _is_function(each, what, Function.PLAIN, Function.LOGARITHM)
    _same(each, what, 0)
    _is_float(each, what)
    return 32 * count, (count,), count


def _normalise(_: Content, each: Instruction, what: str) -> _Found:
    _require(len(each.inputs) in (2, 3), what, "has no scale")
    inputs = len(each.inputs)
    _shaped(each, what, inputs, 1 + inputs, 1)
    _same(each, what, *range(inputs))
    _is_float(each, what)
    groups, size, *steps = each.sizes
    _require(size > 0 and set(steps) <= {0, 1}, what, "has empty groups, or a step of neither 0 nor 1")
    count = _steps_of((groups, size))
    return 3 * count, (count, *(size if step else 1 for step in steps)), count


def _forest(content: Content, each: Instruction, what: str) -> _Found:
    _shaped(each, what, 1, 1)
    (number,) = each.sizes
    _require(number < len(content.forests), what, f"asks for forest {number}, which there is not")
    forest = content.forests[number]
    _same(each, what, 0)
    _require(forest.dtype == each.output.dtype, what, "has operands of types that do not fit")
    return len(forest.kinds) + len(forest.weights), (forest.columns,), forest.targets


_RULES: Final[Mapping[Opcode, Callable[[Content, Instruction, str], _Found]]] = MappingProxyType(
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


FUNCTIONS: Final[Mapping[Function, tuple[int, int, str]]] = MappingProxyType(
    {
        Function.CAST: (1, 0, "any"),
        Function.NEGATIVE: (1, 0, "number"),
        Function.ABSOLUTE: (1, 0, "number"),
        Function.SIGN: (1, 0, "number"),
        Function.NOT: (1, 0, "tests"),
        Function.IS_NAN: (1, 0, "float tests"),
        **dict.fromkeys((Function.FLOOR, Function.CEIL, Function.ROUND, Function.SQRT), (1, 0, "float")),
        **dict.fromkeys((Function.EXP, Function.LOG, Function.ERF, Function.TANH), (1, 0, "float")),
        **dict.fromkeys((Function.SIGMOID, Function.SOFTPLUS, Function.GELU), (1, 0, "float")),
        Function.GELU_TANH: (1, 0, "float"),
        Function.ELU: (1, 1, "float"),
        Function.CELU: (1, 1, "float"),
        Function.SELU: (1, 2, "float"),
        **dict.fromkeys((Function.ADD, Function.SUBTRACT, Function.TIMES), (2, 0, "number")),
        Function.DIVIDE: (2, 0, "float"),
        Function.POWER: (2, 0, "power"),
        **dict.fromkeys((Function.GREATEST, Function.LEAST, Function.AT_LEAST, Function.AT_MOST), (2, 0, "number")),
        Function.SLOPE: (2, 0, "float"),
        **dict.fromkeys((Function.LESS, Function.LESS_EQUAL, Function.GREATER), (2, 0, "tests")),
        **dict.fromkeys((Function.GREATER_EQUAL, Function.EQUAL), (2, 0, "tests")),
        **dict.fromkeys((Function.AND, Function.OR, Function.XOR), (2, 0, "bools")),
        Function.WHERE: (3, 0, "where"),
        Function.BATCH_NORM: (5, 1, "float"),
    }
)
"""For each function of MAP: how many inputs and numbers it takes, and the rule of its types."""

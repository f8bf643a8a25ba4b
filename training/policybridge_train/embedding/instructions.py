"""The instructions of a form as statements in C: the steps of `policybridge_forms.evaluating`, for one observation."""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from types import MappingProxyType
from typing import Final

from policybridge_forms import Function, Instruction, Opcode
from policybridge_forms.checks import spans
from policybridge_train.embedding.body import Body
from policybridge_train.embedding.elements import element, wrapped
from policybridge_train.embedding.forest import write_forest
from policybridge_train.embedding.interface import Embedded
from policybridge_train.embedding.rows import Row, Rows
from policybridge_train.embedding.text import c_type


def write_instructions(policy: Embedded, body: Body) -> Row:
    """Write all instructions; give the result.

    Raises:
        UnsupportedError: as of `Rows`.

    """
    rows = Rows(policy, body)
    for each in policy.content.instructions:
        counts, count = spans(policy.content, each)
        inputs = [rows.row(operand, size) for operand, size in zip(each.inputs, counts, strict=True)]
        out = rows.row(each.output, count)
        if each.opcode is Opcode.FOREST:
            forest = policy.content.forests[each.sizes[0]]
            is_number = rows.is_number(each.inputs[0], forest.columns)
            write_forest(body, forest, inputs[0], out, is_number=is_number)
        else:
            _WRITTEN[each.opcode](body, each, inputs, out)
        rows.follow(each)
    return rows.row(policy.content.result, policy.content.results)


def _index(terms: Sequence[tuple[str, int]]) -> str:
    """Write the sum of the indices, each times its step."""
    return " + ".join(name if step == 1 else f"{name} * {step}" for name, step in terms if step) or "0"


def _map(body: Body, each: Instruction, inputs: Sequence[Row], out: Row) -> None:
    if not each.count:
        return
    names = ["i"] if each.axes == 1 else [f"i{axis}" for axis in range(each.axes)]
    own = [math.prod(each.dims[axis + 1 :]) for axis in range(each.axes)]
    places = [_index(list(zip(names, strides, strict=True))) for strides in each.strides]
    with ExitStack() as loops:
        for name, dim in zip(names, each.dims, strict=True):
            loops.enter_context(body.loop(name, dim))
        reads = [row[place] for row, place in zip(inputs, places, strict=True)]
        body.line(f"{out[_index(list(zip(names, own, strict=True)))]} = {element(body, each, *reads)};")


def _pick(body: Body, each: Instruction, inputs: Sequence[Row], out: Row) -> None:
    x, table = inputs
    with body.loop("i", each.sizes[0]):
        body.line(f"{out['i']} = {x[table['i']]};")


def _gather(body: Body, each: Instruction, inputs: Sequence[Row], out: Row) -> None:
    outer, size, inner, count = each.sizes
    data, indices = inputs
    bad = f"return {body.prefix.upper()}_BAD_INDEX;"
    if count and not size:
        body.line(bad)
        return
    with body.loop("g", count):
        if each.inputs[1].dtype.str[1:] == "u8":
            body.line(f"if ({indices['g']} >= {size}) {bad}")
        body.line(f"int64_t at = (int64_t){indices['g']};")
        body.line(f"if (at < -{size} || at >= {size}) {bad}")
        body.line(f"if (at < 0) at += {size};")
        with body.loop("o", outer), body.loop("i", inner):
            read = data[f"(o * {size} + (size_t)at) * {inner} + i"]
            body.line(f"{out[f'(o * {count} + g) * {inner} + i']} = {read};")


def _place(body: Body, each: Instruction, inputs: Sequence[Row], out: Row) -> None:
    (x,), (outer, size, step) = inputs, each.sizes
    if outer == 1:
        with body.loop("i", size):
            body.line(f"{out['i']} = {x['i']};")
        return
    with body.loop("o", outer), body.loop("i", size):
        body.line(f"{out[f'o * {step} + i']} = {x[f'o * {size} + i']};")


def _multiply(body: Body, each: Instruction, inputs: Sequence[Row], out: Row) -> None:
    """Write the product of two matrices: each element is a sum in the order of the inner dimension."""
    (rows, inner, columns, *strides), dtype = each.sizes, each.output.dtype
    place = out[f"r * {columns} + c"]

    def added(to: str) -> str:
        x = inputs[0][_index([("r", strides[0]), ("k", strides[1])])]
        y = inputs[1][_index([("k", strides[2]), ("c", strides[3])])]
        if dtype.kind == "f":
            return f"{to} += {x} * {y};"
        return f"{to} = {wrapped(dtype, '+', to, f'((uint64_t){x} * (uint64_t){y})')};"

    with body.loop("r", rows):
        # By rows of the second matrix where they lie in one piece: compilers make vectors of that.
        if strides[3] == 1 and columns > 1:
            with body.loop("c", columns):
                body.line(f"{place} = 0;")
            with body.loop("k", inner), body.loop("c", columns):
                body.line(added(place))
            return
        with body.loop("c", columns):
            body.line(f"{c_type(dtype)} sum = 0;")
            with body.loop("k", inner):
                body.line(added("sum"))
            body.line(f"{place} = sum;")


def _reduce(body: Body, each: Instruction, inputs: Sequence[Row], out: Row) -> None:
    groups, size = each.sizes
    sign = {Function.MAXIMUM: ">", Function.MINIMUM: "<"}.get(each.function)
    with body.loop("o", groups):
        read = inputs[0][f"o * {size} + i"]
        body.line(f"{c_type(each.output.dtype)} all = {inputs[0][f'o * {size}'] if sign else 0};")
        with body.loop("i", size):
            body.line(f"if ({read} {sign} all) all = {read};" if sign else f"all += {read};")
        body.line(f"{out['o']} = all{f' / {size}' if each.function is Function.MEAN else ''};")


def _argument(body: Body, each: Instruction, inputs: Sequence[Row], out: Row) -> None:
    groups, size = each.sizes
    sign = ">" if each.function is Function.MAXIMUM else "<"
    with body.loop("o", groups):
        body.line("size_t best = 0;")
        with body.loop("i", size):
            one, other = (inputs[0][f"o * {size} + {place}"] for place in ("i", "best"))
            body.line(f"if ({one} {sign} {other}) best = i;")
        body.line(f"{out['o']} = (int64_t)best;")


def _softmax(body: Body, each: Instruction, inputs: Sequence[Row], out: Row) -> None:
    groups, size = each.sizes
    c, exp, is_log = c_type(each.output.dtype), body.call("exp"), each.function is Function.LOGARITHM
    with body.loop("o", groups):
        read = inputs[0][f"o * {size} + i"]
        body.line(f"{c} most = {inputs[0][f'o * {size}']};")
        body.line("double total = 0;")
        with body.loop("i", size):
            body.line(f"if ({read} > most) most = {read};")
        with body.loop("i", size):
            body.line(f"total += {exp}((double)({read} - most));")
        if is_log:
            body.line(f"total = {body.call('log')}(total);")
        with body.loop("i", size):
            value = f"(double)({read} - most) - total" if is_log else f"{exp}((double)({read} - most)) / total"
            body.line(f"{out[f'o * {size} + i']} = ({c})({value});")


def _normalise(body: Body, each: Instruction, inputs: Sequence[Row], out: Row) -> None:
    groups, size, *steps = each.sizes
    x, *rest = inputs
    with body.loop("o", groups):
        read = x[f"o * {size} + i"]
        body.line("double mean = 0, spread = 0;")
        with body.loop("i", size):
            body.line(f"mean += {read};")
        body.line(f"mean /= {size}.0;")
        with body.loop("i", size):
            body.line(f"spread += ((double){read} - mean) * ((double){read} - mean);")
        body.line(f"spread = {body.call('sqrt')}(spread / {size}.0 + {each.numbers[0]!r});")
        scale, *bias = (row[_index([("i", step)])] for row, step in zip(rest, steps, strict=True))
        normal = f"({c_type(each.output.dtype)})(((double){read} - mean) / spread) * {scale}"
        with body.loop("i", size):
            body.line(f"{out[f'o * {size} + i']} = {' + '.join([normal, *bias])};")


_WRITTEN: Final[Mapping[Opcode, Callable[[Body, Instruction, Sequence[Row], Row], None]]] = MappingProxyType(
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
    }
)

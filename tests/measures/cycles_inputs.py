"""Made-up inputs for programs that are measured: of several kinds, the same for the same number in each process."""

import json
import random
from collections.abc import Callable, Mapping
from typing import Final

_LETTERS: Final = "etaoinshrdlucmfwypvbgkjqxz"


def make(kind: str, size: int, number: int) -> bytes:
    """Make an input.

    Args:
        kind: in `KINDS`.
        size: bytes, at least; pieces are whole.
        number: another number is another input of the kind.

    """
    chance = random.Random(f"{kind} {number}")
    words = ["".join(chance.choices(_LETTERS[: 8 + n % 18], k=2 + n % 9)) for n in range(900)]
    begin, piece, end = KINDS[kind]
    made, length = [begin], len(begin)
    while length < size:
        made.append(piece(chance, words))
        length += len(made[-1])
    return ("".join(made) + end).encode()


def _prose(chance: random.Random, words: list[str]) -> str:
    line = chance.choices(words, k=40)
    title = f"# {line[0]} {line[1]}\n\n* *{line[2]}* and [{line[3]}](#{line[4]}) with `{line[5]}`\n\n"
    return f"{title if chance.random() < 0.2 else ''}{' '.join(line)}.\n\n"


def _json(chance: random.Random, words: list[str]) -> str:
    some = chance.choices(words, k=6)
    row = {some[0]: chance.random(), some[1]: some[2], "tags": some[3:], "n": chance.randrange(10**6), "x": None}
    return json.dumps(row, indent=chance.choice((None, 1))) + ",\n"


def _xml(chance: random.Random, words: list[str]) -> str:
    some = chance.choices(words, k=7)
    inner = " ".join(chance.choices(words, k=chance.randrange(3, 20)))
    return f'<{some[0]} {some[1]}="{some[2]}" n="{chance.randrange(999)}"><b>{inner} &amp; {some[3]}</b></{some[0]}>\n'


def _code(chance: random.Random, words: list[str]) -> str:
    a, b, c = chance.choices(words, k=3)
    body = "".join(f"  {a}_ += {b}_ * {chance.randrange(99)} - ({c}_ >> {n});\n" for n in range(chance.randrange(2, 9)))
    return f"int {a}_{chance.randrange(10**6)}(int {b}_, int {c}_) {{\n  int {a}_ = 0;\n{body}  return {a}_;\n}}\n\n"


def _rows(chance: random.Random, words: list[str]) -> str:
    number = chance.randrange(10**9)
    return "".join(f"{number + n}\t{chance.choice(words)}\t{chance.gauss(100, 15):.3f}\t{n % 7}\n" for n in range(8))


def _lua(chance: random.Random, words: list[str]) -> str:
    a, b = (f"{word}_" for word in chance.choices(words, k=2))
    return (
        "do local t, s = {}, 0\n"
        f"for i = 1, {chance.randrange(40, 90)} do t[i] = ('{a}' .. i * {chance.randrange(9)}) end\n"
        f"local function {b}(n) if n < 2 then return n end return {b}(n - 1) + {b}(n - 2) end\n"
        f"for k, v in ipairs(t) do s = s + #v * {b}({chance.randrange(5, 9)}) + (v:find('{b[0]}') or 0) end\n"
        "table.sort(t); total = (total or 0) + s + #table.concat(t, ',') end\n"
    )


_Piece = Callable[[random.Random, list[str]], str]
KINDS: Final[Mapping[str, tuple[str, _Piece, str]]] = {
    "prose": ("Prose\n=====\n\n", _prose, "\n"),
    "json": ("[\n", _json, "0]\n"),
    "xml": ("<?xml version='1.0'?>\n<all>\n", _xml, "</all>\n"),
    "code": ("/* made up */\n", _code, "\n"),
    "rows": ("number\tname\tvalue\tclass\n", _rows, "\n"),
    "lua": ("local total\n", _lua, "print(total)\n"),
}
"""By name: the beginning, what makes a piece, and the end."""

"""Made-up inputs for programs that are measured: of several kinds, the same for the same number in each process."""

import json
import math
import random
import struct
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
    return ("".join(made) + end).encode(CODECS.get(kind, "utf-8"))


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


def _html(chance: random.Random, words: list[str]) -> str:
    items = "".join(f"<li><b>{a}</b> {b}: <a href='{c}.html'>{c}</a>\n" for a, b, c in _some(chance, words, 3))
    cells = "".join(f"<tr><td>{a}</td><td>{chance.randrange(10**5)}</td></tr>\n" for (a,) in _some(chance, words, 1))
    text = " ".join(chance.choices(words, k=50))
    return f"<h2>{chance.choice(words)} &eacute;</h2>\n<p>{text}</p>\n<ul>{items}</ul>\n<table>{cells}</table>\n"


def _some(chance: random.Random, words: list[str], width: int) -> list[tuple[str, ...]]:
    return [tuple(chance.choices(words, k=width)) for _ in range(chance.randrange(2, 7))]


def _hebrew(chance: random.Random, words: list[str]) -> str:
    line = chance.choices(words, k=16)
    turned = {chance.randrange(len(line)) for _ in range(9)}
    said = (_alphabet(word, "א") if n in turned else word for n, word in enumerate(line))
    return f"{' '.join(said)} ({len(turned)}).\n"


def _cyrillic(chance: random.Random, words: list[str]) -> str:
    return " ".join(_alphabet(word, "а") for word in chance.choices(words, k=9)) + "\n"


def _alphabet(word: str, first: str) -> str:
    return "".join(chr(ord(first) + ord(letter) - ord("a")) for letter in word)


def _words(chance: random.Random, words: list[str]) -> str:
    return chance.choice(words) + chance.choice(words) + chance.choice(("", "s", "ing", "ed", "ation", "ness")) + "\n"


def _sound(chance: random.Random, _: list[str]) -> str:
    """Make samples of eight bits with no byte above 127: so the file is a text, too."""
    tones = [(chance.uniform(60, 3000) / _RATE, chance.uniform(3, 18)) for _ in range(3)]
    waves = (sum(loud * math.sin(math.tau * high * n) for high, loud in tones) for n in range(_RATE // 8))
    return "".join(chr(64 + round(wave + chance.uniform(-2, 2))) for wave in waves)


_RATE: Final = 22050
_ENDLESS: Final = 0x7F7F7F7F
_FORMAT: Final = struct.pack("<IHHIIHH", 16, 1, 1, _RATE, _RATE, 1, 8)
_WAVE: Final = struct.pack("<4sI8s20s4sI", b"RIFF", _ENDLESS, b"WAVEfmt ", _FORMAT, b"data", _ENDLESS)
"""A header whose length is no real one: a program reads to the end."""


def _asm(chance: random.Random, words: list[str]) -> str:
    name = f"{chance.choice(words)}_{chance.randrange(10**6)}"
    lines = (_CODES[chance.randrange(len(_CODES))].format(*chance.choices(range(99), k=2)) for _ in range(12))
    body = "".join(f"  {line}\n" for line in lines)
    return f"{name}:  ; {chance.choice(words)}\n  ld b,{chance.randrange(1, 99)}\n{body}  djnz {name}\n"


_CODES: Final = ("ld a,{0}", "ld hl,{0}*{1}+2", "add a,b", "xor {0}", "ld (ix+{0}),a", "defb {0},{1},'x'", "bit 3,c")


def _lex(chance: random.Random, words: list[str]) -> str:
    a, b, c = chance.choices(words, k=3)
    pattern = chance.choice((f"{a}", f"{a}[0-9a-{b[0]}]*{c[:2]}", f"({a}|{b})+", f"{a}.?{b}"))
    return f"{pattern}\treturn {chance.randrange(999)};\n"


def _proteins(chance: random.Random, words: list[str]) -> str:
    changed = "".join(chance.choice(_ACIDS) if chance.random() < 0.3 else acid for acid in _PROTEIN)
    return f">{chance.choice(words)}{chance.randrange(10**6)}\n{changed[chance.randrange(9) :]}\n"


_ACIDS: Final = "ACDEFGHIKLMNPQRSTVWY"
_PROTEIN: Final = "".join(random.Random(0).choices(_ACIDS, k=120))


def _shell(chance: random.Random, words: list[str]) -> str:
    a, b = chance.choices(words, k=2)
    return (
        f"i=0 {a}= ; while [ $i -lt {chance.randrange(20, 60)} ]; do i=$((i + 1))\n"
        f'  case "{b}$i" in *{chance.randrange(9)}) {a}="${a}${{i}}{b}" ;; {b[0]}*1*) {a}=${{{a}#*{b[-1]}}} ;; esac\n'
        f'done; f_{a}() {{ set -- "$@" "{b}"; echo "$# ${{#{a}}} ${{1%%{b[-1]}*}}"; }}; f_{a} ${a} {b}\n'
    )


def _sql(chance: random.Random, words: list[str]) -> str:
    rows = ",".join(f"({n},'{chance.choice(words)}',{chance.random():.6f})" for n in chance.choices(range(10**6), k=20))
    a, b = chance.choices(words, k=2)
    return (
        f"insert into t values{rows};\n"
        f"select count(*), sum(a), group_concat(distinct substr(b, 1, 3)) from t where b like '%{a[:2]}%' or a % 7 = 3;"
        "\n"
        f"select b, max(c) m from t where b > '{b}' group by b having count(*) > 1 order by m desc limit 5;\n"
    )


_Piece = Callable[[random.Random, list[str]], str]
KINDS: Final[Mapping[str, tuple[str, _Piece, str]]] = {
    "prose": ("Prose\n=====\n\n", _prose, "\n"),
    "json": ("[\n", _json, "0]\n"),
    "xml": ("<?xml version='1.0'?>\n<all>\n", _xml, "</all>\n"),
    "code": ("/* made up */\n", _code, "\n"),
    "rows": ("number\tname\tvalue\tclass\n", _rows, "\n"),
    "html": ("<html><head><title>made up</title></head><body>\n", _html, "</body></html>\n"),
    "hebrew": ("", _hebrew, "\n"),
    "cyrillic": ("", _cyrillic, "\n"),
    "words": ("", _words, ""),
    "sound": (_WAVE.decode(), _sound, ""),
    "asm": ("  org 8000h\n", _asm, "  end\n"),
    "lex": ("%option noyywrap\n%%\n", _lex, "%%\n"),
    "proteins": ("", _proteins, ""),
    "shell": ("", _shell, ""),
    "sql": ("create table t(a integer, b text, c real);\ncreate index i on t(b);\n", _sql, ""),
    "lua": ("local total\n", _lua, "print(total)\n"),
}
"""By name: the beginning, what makes a piece, and the end."""

CODECS: Final[Mapping[str, str]] = {"cyrillic": "koi8-r"}
"""Of the kinds that are not UTF-8."""

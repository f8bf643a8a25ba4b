"""Programs that print a checksum, and in which nothing is undefined: Csmith's where it is installed, else ours."""

import random
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

CSMITH_INCLUDES: Final = Path("/usr/include/csmith")
FUNCTIONS: Final = 24
"""The most functions that a program has choices for."""

_CSMITH: Final = ("--max-funcs", "8", "--max-block-depth", "4", "--max-expr-complexity", "8", "--no-argc")


def write_program(seed: int, folder: Path) -> Path:
    """Write the program of a seed; give its path. Csmith makes every fourth, if it is installed."""
    path = folder / f"program{seed}.c"
    if seed % 4 or not shutil.which("csmith") or not _by_csmith(seed, path):
        path.write_text(_Writer(random.Random(seed)).program())
    return path


def _by_csmith(seed: int, path: Path) -> bool:
    """Write Csmith's program of a seed; False where it does not end: of some seeds it never does."""
    words = ["csmith", *_CSMITH, "--seed", str(seed), "--output", str(path)]
    try:
        subprocess.run(words, cwd=path.parent, check=True, capture_output=True, timeout=60)
    except subprocess.TimeoutExpired:
        return False
    return True


def names() -> list[str]:
    """Give the names of functions that programs have."""
    own = [f"f{number}" for number in range(FUNCTIONS)]
    return ["main", *own, *(f"func_{number}" for number in range(1, FUNCTIONS)), "transparent_crc", "crc32_byte"]


class _Writer:
    """Writes loops over small arrays, switches, copies of bytes and calls, with unsigned numbers only."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._names = 0

    def program(self) -> str:
        count = self._chance.randint(3, 10)
        functions = [self._function(number) for number in range(count)]
        calls = " ".join(f"s = s * 31 + f{number}(s + {number}, s >> 7);" for number in range(count))
        head = (
            "#include <stdio.h>\n#include <string.h>\n"
            "typedef unsigned u; typedef unsigned long ul; typedef unsigned char b;\n"
            "static u steps, g[64]; static b h[64]; struct pair { u x, y; b z[12]; } p[8];\n"
        )
        main = f"int main(void) {{ u s = 1; for (u k = 0; k < 3; k++) {{ {calls} }}\n"
        tail = 'for (u k = 0; k < 64; k++) s = s * 33 ^ g[k] ^ h[k]; printf("%u\\n", s); return 0; }\n'
        return head + "".join(functions) + main + tail

    def _function(self, number: int) -> str:
        linkage = self._chance.choice(["static ", "", "__attribute__((noinline)) static "])
        body = "".join(self._statement(2, number) for _ in range(self._chance.randint(2, 7)))
        begin = f"if (steps++ > 100000u) return c; u x = a ^ {self._number()}, y = c + 3; ul w = a;\n"
        return f"{linkage}u f{number}(u a, u c) {{ {begin}{body}return x + y + (u)w; }}\n"

    def _number(self) -> str:
        return self._chance.choice(["1u", "7u", "255u", "65536u", "0x9e3779b9u", "4096u", "31u", "1000000007u"])

    def _value(self) -> str:
        shapes = [
            "x",
            "y",
            "a",
            "c",
            "(u)w",
            "g[x & 63]",
            "g[y & 63]",
            "(u)h[a & 63]",
            "p[x & 7].y",
            "(u)p[y & 7].z[x % 12]",
        ]
        return self._chance.choice([*shapes, self._number()])

    def _expression(self) -> str:
        one, two, three = self._value(), self._value(), self._value()
        shapes = [
            f"({one} + {two} * {three})", f"({one} ^ ({two} << ({three} & 31)))", f"({one} / ({two} | 1) - {three})",
            f"({one} % ({two} | 1) & {three})", f"({one} < {two} ? {three} : {one})",
            f"(~{one} >> ({two} & 15) | {three})", f"(({one} == {two}) + ({two} > {three}) * 5u)",
            f"({one} * 12 + {two} * 20)", f"(({one} & 0xffu) << 8 | ({two} & 0xffu))",
        ]  # fmt: skip
        return self._chance.choice(shapes)

    def _statement(self, depth: int, number: int) -> str:
        simple: list[Callable[[], str]] = [self._assignment, self._bytes, lambda: self._call(number)]
        nested = [self._branch, self._loop, self._switch, self._two_loops]
        if depth and self._chance.random() < 0.55:
            return self._chance.choice(nested)(depth - 1, number)
        return self._chance.choice(simple)()

    def _assignment(self) -> str:
        places = ["x", "y", "g[y & 63]", "g[x & 63]", "h[x & 63]", "p[y & 7].x", "p[x & 7].z[y % 12]", "w"]
        return f"{self._chance.choice(places)} {self._chance.choice(['=', '+=', '^='])} {self._expression()};\n"

    def _bytes(self) -> str:
        shapes = [
            "memcpy(&h[32], &h[x & 15], 16);", "memset(&h[y & 31], (int)(x & 255), 9);", "p[x & 7] = p[(y + 1) & 7];",
            "x += memcmp(h, &h[32], 8) != 0;", "if (p[0].x == p[1].x && p[0].y == p[1].y) y ^= 77;",
            "w = w * w + (ul)x * y;", "for (u k = 0; k < 64; k++) g[k] += h[k] * x;",
        ]  # fmt: skip
        return self._chance.choice(shapes) + "\n"

    def _call(self, number: int) -> str:
        if not number:
            return self._assignment()
        return f"y += f{self._chance.randrange(number)}({self._value()}, {self._expression()});\n"

    def _inner(self, depth: int, number: int) -> str:
        return "".join(self._statement(depth, number) for _ in range(self._chance.randint(1, 3)))

    def _name(self) -> str:
        self._names += 1
        return f"i{self._names}"

    def _branch(self, depth: int, number: int) -> str:
        other = f" else {{ {self._inner(depth, number)} }}" if self._chance.random() < 0.6 else ""
        return f"if ({self._expression()} & {self._number()}) {{ {self._inner(depth, number)} }}{other}\n"

    def _loop(self, depth: int, number: int) -> str:
        name, bound = self._name(), self._chance.choice(["4", "9", "16", "(x & 15)", "(y & 7) + 1"])
        body = f"g[({name} + x) & 63] += {name} * {self._number()}; {self._inner(depth, number)}"
        leave = f"if ({self._value()} == {name}) break;" if self._chance.random() < 0.4 else ""
        return f"for (u {name} = 0, n{name} = {bound}; {name} < n{name}; {name}++) {{ {body} {leave} }}\n"

    def _two_loops(self, depth: int, number: int) -> str:
        one, two = self._name(), self._name()
        bodies = [
            f"g[{one} * 8 + {two}] ^= h[{two} * 8 + {one}] + x;",
            f"x += g[{one} + {two}] * {one};",
            f"h[{one} * 4 + {two}] = (b)(h[{two}] + {one});",
        ]
        inner = self._chance.choice(bodies)
        return f"for (u {one} = 0; {one} < 8; {one}++) for (u {two} = 0; {two} < 8; {two}++) {{ {inner} }}\n"

    def _leave(self) -> str:
        return self._chance.choice(["break;", "break;", "/* on */"])

    def _switch(self, depth: int, number: int) -> str:
        values = self._chance.sample(range(12), self._chance.randint(3, 8))
        cases = "".join(f"case {value}: {self._inner(depth, number)} {self._leave()}\n" for value in values)
        return f"switch ({self._value()} % 12) {{ {cases} default: {self._assignment()} }}\n"

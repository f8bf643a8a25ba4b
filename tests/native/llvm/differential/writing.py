"""Programs of the templates in templates.txt."""

import random
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

_FOLDER: Final = Path(__file__).parent
_SYMBOL: Final = re.compile(r"\$(\$|[a-z]+)")
_LINKAGES: Final = ("static ", "", "__attribute__((noinline)) static ", "__attribute__((noinline)) ")
_SIZES: Final = (1, 1, 1, 2, 2, 3, 4, 8)
"""How many functions programs have."""
_HELPERS: Final = ("turn", "cross", "many")
_HELPERS_CPP: Final = ("_ZL4turn3bigj", "_ZL5cross3twoj", "_ZL4manyjz", "_ZL6thrownj", "_ZN5GuardD2Ev")
"""The functions of prelude.c."""


@cache
def _templates() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    name = ""
    for line in (_FOLDER / "templates.txt").read_text().splitlines():
        if line.startswith(" "):
            found[name].append(line.strip())
        elif line and not line.startswith("#"):
            name = line
            found[name] = []
    return found


class Writer:
    """Writes functions that call those before them, and a main that calls all and prints a checksum."""

    def __init__(self, chance: random.Random, *, is_cpp: bool) -> None:
        self._chance = chance
        self.is_cpp = is_cpp
        self.functions = list(_HELPERS_CPP if is_cpp else _HELPERS)
        """Those of the program, as the object names them."""
        nested = [*_templates()["nested"], *(3 * _templates()["nested c++"] if is_cpp else ())]
        self._symbols: Mapping[str, Sequence[str]] = _templates() | {"nested": nested}
        self._special: Mapping[str, Callable[[], str]] = {
            "$": lambda: "$",
            "self": lambda: f"f{self._function}",
            "callee": lambda: f"f{self._chance.randrange(self._function)}",
            "some": lambda: "".join(self._statement() for _ in range(self._chance.randint(1, 3))),
            "simple": lambda: self._expand(self._chosen("simple")) + "\n",
            "nested": self._nest,
            "cases": self._cases,
        }
        self._names = 0
        self._function = 0
        self._depth = 2

    def program(self) -> str:
        """Write a program."""
        count = self._chance.choice(_SIZES)
        functions = [self._write_function(number) for number in range(count)]
        calls = " ".join(f"s = s * 31 + f{number}(s + {number}, s >> 7);" for number in range(count))
        main = f"int main(void) {{ u s = 1; for (u k = 0; k < 3; k++) {{ {calls} }}\n{self._symbols['end'][0]}\n"
        return "".join([(_FOLDER / "prelude.c").read_text(), *functions, main])

    def _write_function(self, number: int) -> str:
        self._function = number
        linkage = self._chance.choice(_LINKAGES)
        self.functions.append(self._name_of(f"f{number}", linkage))
        body = self._expand(self._chosen("body"))
        begin = self._expand(self._symbols["begin"][0])
        return f"static jmp_buf jf{number};\n{linkage}u f{number}(u a, u c) {{ {begin}\n{body} }}\n"

    def _name_of(self, function: str, linkage: str) -> str:
        return f"_Z{'L' if 'static' in linkage else ''}{len(function)}{function}jj" if self.is_cpp else function

    def _chosen(self, symbol: str) -> str:
        templates = self._symbols[symbol]
        # The first function has none before it that it could call.
        able = templates if self._function else [each for each in templates if "$callee" not in each]
        return self._chance.choice(able)

    def _expand(self, template: str) -> str:
        self._names += 1
        own = f"i{self._names}"
        return _SYMBOL.sub(lambda found: own if found[1] == "n" else self._symbol(found[1]), template)

    def _symbol(self, name: str) -> str:
        special = self._special.get(name)
        return special() if special else self._expand(self._chosen(name))

    def _statement(self) -> str:
        is_nested = self._depth and self._chance.random() < 0.35
        return self._nest() if is_nested else self._symbol("simple")

    def _nest(self) -> str:
        self._depth -= 1
        written = self._expand(self._chosen("nested")) + "\n"
        self._depth += 1
        return written

    def _cases(self) -> str:
        values = self._chance.sample(range(12), self._chance.randint(3, 6))
        leave = ("break;", "break;", "/* on */")
        return "".join(f"case {value}: {self._symbol('simple')} {self._chance.choice(leave)}\n" for value in values)

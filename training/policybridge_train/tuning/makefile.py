"""The compilers that a makefile or a configure script names, with their flags, and makefiles that make themselves."""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

_NAMES: Final = ("GNUmakefile", "makefile", "Makefile")
_ITSELF: Final = ("$(FIRST_MAKEFILE)", "$(MAKEFILE)")
"""The names that generators of makefiles give to the file."""


@dataclass(frozen=True)
class Makefile:
    """The makefile of a build by make.

    Attributes:
        name: as make is told it.
        text: empty if there is none.

    """

    name: str
    text: str

    @classmethod
    def of(cls, build: Sequence[str], folder: str) -> "Makefile":
        """Find the makefile of a command that builds a folder."""
        names = [*_named(build[1:])] or _NAMES
        found = next((name for name in names if Path(folder, name).is_file()), names[-1])
        file = Path(folder, found)
        return cls(found, file.read_text(encoding="utf-8", errors="surrogateescape") if file.is_file() else "")

    @property
    def makes_itself(self) -> bool:
        """Whether it has a rule for itself, which ``make -B`` follows."""
        targets = "|".join(map(re.escape, (self.name, *_ITSELF)))
        return re.search(rf"^({targets})\s*:(?!=)", self.text, re.MULTILINE) is not None

    def flags(self, build: Sequence[str], environment: Mapping[str, str], variable: str, driver: str) -> str:
        """Give what follows a compiler in the variable that names it, such as ``-std=gnu99``.

        The command of make counts, then the makefile, then the environment. Variables in the words stay as they are.

        Args:
            build: the command.
            environment: in which it ran.
            variable: such as ``CC``.
            driver: the name of the compiler; if the variable names another, nothing follows it.

        """
        return flags_behind(driver, self._value(build, environment, variable))

    def _value(self, build: Sequence[str], environment: Mapping[str, str], variable: str) -> str:
        given = [
            value for name, sign, value in (word.partition("=") for word in build[1:]) if sign and name == variable
        ]
        if given:
            return given[-1]
        value = environment.get(variable, "")
        for sign, its in re.findall(rf"^{variable}\s*([+?]?|:{{1,3}})=[ \t]*([^#\\\n]*)", self.text, re.MULTILINE):
            if sign == "+":
                value = f"{value} {its}"
            elif sign != "?" or not value:
                value = its
        return value


def flags_behind(driver: str, words: str) -> str:
    """Give what follows a compiler in words that may start it by others (``ccache``); nothing if it is not there."""
    split = words.split()
    place = next((index for index, word in enumerate(split) if Path(word).name == Path(driver).name), len(split))
    return " ".join(split[place + 1 :])


def configured_with(folder: Path) -> list[str]:
    """Give the arguments with which Autoconf's script configured a folder; none if it did not."""
    status = folder / "config.status"
    text = status.read_text(encoding="utf-8", errors="surrogateescape") if status.is_file() else ""
    found = re.search(r"^ac_cs_config=(.+)$", text, re.MULTILINE)
    try:
        return [word for words in shlex.split(found[1]) for word in shlex.split(words)] if found else []
    except ValueError:
        return []


def _named(words: Sequence[str]) -> Iterator[str]:
    for word, after in pairwise([*words, ""]):
        if word in ("-f", "--file", "--makefile"):
            yield after
        elif match := re.match(r"(?:-f|--(?:make)?file=)(.+)", word):
            yield match[1]

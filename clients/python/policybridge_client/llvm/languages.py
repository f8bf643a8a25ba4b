"""The language of a source, by its name and the command that compiles it."""

import re
from collections.abc import Sequence
from itertools import takewhile
from pathlib import PurePath
from typing import Final

_SUFFIXES: Final = {
    **dict.fromkeys(["c", "i"], "c"),
    **dict.fromkeys(
        ["C", "CC", "CPP", "CXX", "c++", "c++m", "cc", "ccm", "cp", "cpp", "cppm", "cxx", "cxxm", "ii", "iim"], "c++"
    ),
    **dict.fromkeys(["m", "mi"], "objective-c"),
    **dict.fromkeys(["M", "mm", "mii"], "objective-c++"),
    "rs": "rust",
}
"""As clang's driver takes them (``lookupTypeForExtension`` in clang/lib/Driver/Types.cpp)."""

BY_OPTION: Final = {
    **dict.fromkeys(["c", "cpp-output"], "c"),
    **dict.fromkeys(["c++", "c++-cpp-output", "c++-module", "c++-module-cpp-output"], "c++"),
    **dict.fromkeys(["objective-c", "objective-c-cpp-output"], "objective-c"),
    **dict.fromkeys(["objective-c++", "objective-c++-cpp-output"], "objective-c++"),
    **dict.fromkeys(["cl", "cuda", "cuda-cpp-output", "hip", "hip-cpp-output", "ir"], ""),
}
"""The language of what ``-x`` names, if clang then compiles its inputs; empty for one without a label."""

_FOR_CXX: Final = re.compile(r".*\+\+[\d.-]*", re.DOTALL)


def source_language(source: str, command: Sequence[str]) -> str:
    """Give the language of a source: c, c++, objective-c, objective-c++ or rust; empty for another.

    Args:
        source: the file's name.
        command: compiles it; its first word is the driver. If it has the word ``source``, its ``-x`` counts, and that a
            driver for C++ takes C for C++. The last such word counts: others are values of options.

    """
    language = _SUFFIXES.get(PurePath(source).suffix[1:], "")
    if source not in command[1:]:
        return language
    before = command[: len(command) - 1 - command[::-1].index(source)]
    # A wrapper such as ccache may come before the driver.
    drivers = takewhile(lambda word: not word.startswith("-"), before)
    if language == "c" and any(map(_FOR_CXX.fullmatch, drivers)):
        language = "c++"
    told = language
    for place, word in enumerate(before):
        if place and word.startswith("-x"):
            name = word[2:] or command[place + 1]
            told = language if name == "none" else BY_OPTION.get(name, told)
    return told

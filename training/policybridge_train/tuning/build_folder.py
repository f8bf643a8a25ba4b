"""The folder that a build's command builds, and what CMake, Meson or a configure script keeps there."""

import re
from collections.abc import Iterator, Sequence
from configparser import ConfigParser, Error
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final, Literal, TypeVar

import msgspec

CMAKE_CACHE: Final = "CMakeCache.txt"
_CMAKE_SETTINGS: Final = re.compile(
    r"^(CMAKE_BUILD_TYPE|CMAKE_C(?:XX)?_FLAGS(?:_[A-Z]+)?|CMAKE_(?:EXE|SHARED|MODULE)_LINKER_FLAGS|CMAKE_TOOLCHAIN_FILE"
    r"|(?!CMAKE_)[^:\n]+(?=:BOOL|:STRING)|(?!CMAKE_\w+_COMPILER)[^:\n]+(?=:UNINITIALIZED)):[A-Z]+=(.+)$",
    re.MULTILINE,
)
"""What changes the modules, and how they are linked.

Variables of which nobody declares a type were given (``-DCMAKE_UNITY_BUILD=ON``). Those that the project declares may
have been given: the cache does not tell. Advanced ones hardly are.
"""

_CMAKE_OWN: Final = {
    "DEBUG": "-g",
    "MINSIZEREL": "-Os -DNDEBUG",
    "RELEASE": "-O3 -DNDEBUG",
    "RELWITHDEBINFO": "-O2 -g -DNDEBUG",
}
"""The flags of CMake's types for clang and gcc, if nobody gives others."""

_CMAKE_ADVANCED: Final = re.compile(r"^((?!CMAKE_).+)-ADVANCED:INTERNAL=1$", re.MULTILINE)
_CMAKE_HOME: Final = re.compile(r"^CMAKE_HOME_DIRECTORY:INTERNAL=(.+)$", re.MULTILINE)
_MESON_OPTIONS: Final = "meson-private/cmd_line.txt"
_MESON_INFO: Final = "meson-info/meson-info.json"
_MESON_VALUES: Final = "meson-info/intro-buildoptions.json"
_MESON_FLAGS: Final = ("c_args", "c_link_args", "cpp_args", "cpp_link_args")
_MAKES: Final = ("make", "gmake")
_BUILDERS: Final = ("cmake", "meson", "ninja", *_MAKES)
_NAMING: Final = ("-C", "--directory", "--build")

System = Literal["cmake", "meson", "configure", "other"]

_KEEPING: Final = ("cmake", "meson")
"""Systems that keep the compiler with which they configured a folder."""

_T = TypeVar("_T")


class _Directories(msgspec.Struct):
    source: str = "."


class _Info(msgspec.Struct):
    directories: _Directories = msgspec.field(default_factory=_Directories)


class _Option(msgspec.Struct):
    name: str
    value: object = None


@dataclass(frozen=True)
class BuildFolder:
    """The folder of a build, and the system that configured it.

    Attributes:
        path: as the build's command names it; ``.`` if it names none.
        system: ``other`` if none is known.

    """

    path: str
    system: System

    @classmethod
    def of(cls, build: Sequence[str]) -> "BuildFolder":
        """Find the folder of a command, which is not empty."""
        path = next(reversed(list(_named(build[1:]))), ".")
        return cls(path, _system(Path(path)) if Path(build[0]).name in _BUILDERS else "other")

    @property
    def source(self) -> str:
        """The folder with the sources that CMake or Meson configured: ``.`` if it is the working folder."""
        if self.system == "cmake":
            found = _CMAKE_HOME.search(self._read(CMAKE_CACHE))
            home = found[1] if found else "."
        else:
            info = _decoded(self._read(_MESON_INFO), _Info)
            home = info.directories.source if info else "."
        return "." if Path(home).resolve() == Path.cwd() else home

    @property
    def settings(self) -> Sequence[str]:
        """The options for a folder of CMake's or Meson's with the same level and flags."""
        if self.system == "cmake":
            cache = self._read(CMAKE_CACHE)
            advanced = set(_CMAKE_ADVANCED.findall(cache))
            found = [(name, _carried(name, value)) for name, value in _CMAKE_SETTINGS.findall(cache)]
            return [f"-D{name}={value}" for name, value in found if value and name not in advanced]
        return [f"-D{name}={value}" for name, value in self._meson_options().items()]

    def _meson_options(self) -> dict[str, str]:
        """Give the options that Meson was given, and the flags that it took from the environment."""
        given = ConfigParser(delimiters=["="], interpolation=None)
        given.optionxform = str  # type: ignore[assignment, method-assign]  # typeshed declares a method
        try:
            given.read_string(self._read(_MESON_OPTIONS))
        except Error:
            return {}
        options = dict(given["options"]) if given.has_section("options") else {}
        for each in _decoded(self._read(_MESON_VALUES), list[_Option]) or ():
            if each.name in _MESON_FLAGS and each.value:
                options.setdefault(each.name, str(each.value))
        return options

    def _read(self, name: str) -> str:
        file = Path(self.path, name)
        return file.read_text(encoding="utf-8", errors="surrogateescape") if file.is_file() else ""


def configured_folder(folder: Path) -> Path | None:
    """Give the folder itself or the nearest parent that CMake or Meson configured, but for those of CMake's trials."""
    configured = (each for each in (folder, *folder.parents) if _system(each) in _KEEPING)
    return next((each.resolve() for each in configured if "CMakeFiles" not in each.parts), None)


def place_words(build: Sequence[str]) -> list[str]:
    """Give the words with which a command of make names its folder and its makefile."""
    words = list(build[1:])
    found: list[str] = []
    for word, after in pairwise([*words, ""]):
        if word in ("-C", "--directory", "-f", "--file", "--makefile"):
            found += [word, after]
        elif re.match(r"-[Cf].|--(directory|file|makefile)=", word):
            found.append(word)
    return found


def _named(words: Sequence[str]) -> Iterator[str]:
    for word, after in pairwise([*words, ""]):
        if word in _NAMING:
            yield after
        elif match := re.match(r"(?:-C|--directory=)(.+)", word):
            yield match[1]


def _system(folder: Path) -> System:
    if (folder / CMAKE_CACHE).is_file():
        return "cmake"
    if (folder / _MESON_INFO).is_file():
        return "meson"
    # Autoconf and autosetup both write this file.
    return "configure" if (folder / "config.log").is_file() else "other"


def _carried(name: str, value: str) -> str:
    """Give a variable's value for a new folder, without CMake's own flags of a type and without the linker's name."""
    flags, _, build_type = name.partition("_FLAGS_")
    if flags.endswith("_LINKER_FLAGS"):
        return " ".join(word for word in value.split(" ") if not word.startswith(("-fuse-ld=", "--ld-path=")))
    return "" if _CMAKE_OWN.get(build_type) == value else value


def _decoded(text: str, wanted: type[_T]) -> _T | None:
    """Read a file of Meson's; ``None`` if a setup that was ended left half of it."""
    try:
        return msgspec.json.decode(text, type=wanted)
    except (msgspec.DecodeError, UnicodeError):
        return None

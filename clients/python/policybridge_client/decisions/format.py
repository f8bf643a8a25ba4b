"""The text of a store.

    policybridge-decisions 1
    module llvm=22 level=Oz by=site digest=0123456789abcdef path=src/a.cpp
    00d1c2a34b5e6f70 inline caller callee
    e3b0c44298fc1c14 skip early-machinelicm
    9f86d081884c7d65 add gvn-hoist@early test
    module llvm=22 level=Oz by=sequence digest=- path=src/b.cpp
    8a9bacbdcedfe0f1.0 call caller callee
    module llvm=22 level=Oz by=site digest=- phase=link path=build/program

Words are separated by single spaces; names and paths are percent-encoded (`policybridge_client.decisions.text`).
Sections are sorted by path and decisions by key, so that a change of the store is a small diff.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from policybridge_client.decisions.passes import PassChoice, checked_action
from policybridge_client.decisions.store import Decision, Heading, Section, Store
from policybridge_client.decisions.text import By, Phase, checked_kind, checked_level, quoted, unquoted
from policybridge_core.errors import InvalidError

_FIRST_LINE: Final = b"policybridge-decisions 1"
_MODULE: Final = b"module"
_ANSWERS: Final = {b"inline": True, b"call": False}
_WORDS: Final = {inline: word for word, inline in _ANSWERS.items()}
_DIGEST: Final = re.compile(rb"[0-9a-f]{16}")
_KEYS: Final = {"site": _DIGEST, "sequence": re.compile(rb"[0-9a-f]{16}\.[0-9]{1,9}")}
_MAJOR: Final = re.compile(rb"[1-9][0-9]{0,3}")
_CONFLICT: Final = (b"<<<<<<<", b"=======", b">>>>>>>", b"|||||||")
_QUOTED: Final = 60
"""Bytes of a wrong line that a message quotes."""


def parse_store(data: bytes, name: str = "the store") -> Store:
    """Read the text of a store.

    Args:
        data: the bytes of the file.
        name: stands for the file in messages.

    Raises:
        InvalidError: the text is not a store, or was cut off; the message has the line and its right form.

    """
    reading: list[_Reading] = []
    for number, line in enumerate(_lines(data, name), 1):
        try:
            if number == 1:
                _check_first(line)
            else:
                _read(line, reading)
        except InvalidError as error:
            raise InvalidError(f"{name}, line {number}: {error}") from error
    return Store([section.done() for section in reading])


class _Reading:
    """A section whose decisions are being read."""

    def __init__(self, heading: Heading) -> None:
        self.heading = heading
        self._decisions: dict[str, Decision] = {}
        self._passes: dict[tuple[str, str, str], PassChoice] = {}

    def add(self, decision: Decision | PassChoice) -> None:
        # As in the plugin, the first of two counts.
        if isinstance(decision, PassChoice):
            self._passes.setdefault(decision.identity, decision)
        else:
            self._decisions.setdefault(decision.key, decision)

    def done(self) -> Section:
        return Section(self.heading, tuple(self._decisions.values()), tuple(self._passes.values()))


def _lines(data: bytes, name: str) -> list[bytes]:
    lines = data.split(b"\n")
    if lines.pop():
        raise InvalidError(f"{name}: the last line has no end, so the file was cut off; use a whole file")
    if not lines:
        raise InvalidError(f"{name} is empty; a store begins with the line {_FIRST_LINE.decode()!r}")
    return lines


def _check_first(line: bytes) -> None:
    if line == _FIRST_LINE:
        return
    name, _, version = line.partition(b" ")
    if name == _FIRST_LINE.split()[0] and version.isdigit():
        raise InvalidError(f"version {version.decode()} of the format is not supported; supported: 1")
    raise InvalidError(f"a store begins with {_FIRST_LINE.decode()!r}, not with {_shown(line)}")


def _read(line: bytes, sections: list[_Reading]) -> None:
    if line.startswith(_MODULE + b" "):
        sections.append(_Reading(_heading(line)))
    elif line.startswith(_CONFLICT):
        raise InvalidError(f"{_shown(line)} is a conflict of a merge; keep one side, or both without repeated sections")
    elif not sections:
        raise InvalidError(f"before the first decision comes a line 'module llvm=…', not {_shown(line)}")
    else:
        sections[-1].add(_decision(line, sections[-1].heading.by))


def _heading(line: bytes) -> Heading:
    given = dict(word.partition(b"=")[::2] for word in line.split(b" ")[1:])
    missing = [name for name in ("llvm", "level", "by", "digest", "path") if name.encode() not in given]
    if missing:
        raise InvalidError(f"a module line says llvm=, level=, by=, digest= and path=; here is no {missing[0]}=")
    if not _MAJOR.fullmatch(given[b"llvm"]):
        raise InvalidError(f"llvm= is LLVM's major version, such as 22, not {_shown(given[b'llvm'])}")
    digest = given[b"digest"]
    if digest != b"-" and not _DIGEST.fullmatch(digest):
        raise InvalidError(f"a digest is 16 hexadecimal digits, or -, not {_shown(digest)}")
    return Heading(
        int(given[b"llvm"]),
        checked_level(given[b"level"].decode("utf-8", "replace")),
        checked_kind(given[b"by"].decode("utf-8", "replace")),
        None if digest == b"-" else digest.decode(),
        unquoted(given[b"path"]),
        _phase(given.get(b"phase")),
    )


def _phase(given: bytes | None) -> Phase:
    if given not in (None, b"link"):
        raise InvalidError(f"phase= is link, and absent for every other phase, not {_shown(given)}")
    return "compile" if given is None else "link"


def _decision(line: bytes, by: By) -> Decision | PassChoice:
    # Words after the callee are for later versions of the format.
    key, answer, caller, callee = (*line.split(b" ", 4)[:4], b"", b"", b"", b"")[:4]
    if not _KEYS[by].fullmatch(key):
        behind = "" if by == "site" else " followed by .N"
        raise InvalidError(f"a key by {by} is 16 hexadecimal digits{behind}, not {_shown(key)}")
    if action := checked_action(answer.decode("utf-8", "replace")):
        if by != "site":
            raise InvalidError("choices of passes are by site")
        return PassChoice(key.decode(), action, caller.decode("utf-8", "backslashreplace"), unquoted(callee))
    if answer not in _ANSWERS:
        raise InvalidError(f"after the key comes inline, call, skip, add, set or keep, not {_shown(answer)}")
    return Decision(key.decode(), _ANSWERS[answer], unquoted(caller), unquoted(callee))


def _shown(words: bytes) -> str:
    shown = words[:_QUOTED].decode("utf-8", "backslashreplace")
    return repr(shown + "…" if len(words) > _QUOTED else shown)


def format_store(store: Store) -> bytes:
    """Return the text of a store."""
    paths = {path: quoted(path) for path in {section.heading.path for section in store.sections}}
    lines = [_FIRST_LINE]
    for section in sorted(store.sections, key=lambda each: (paths[each.heading.path], *_order(each.heading))):
        lines += _section_lines(paths[section.heading.path], section)
    return b"".join(line + b"\n" for line in lines)


def _section_lines(path: bytes, section: Section) -> Iterator[bytes]:
    heading = section.heading
    start = f"module llvm={heading.llvm} level={heading.level} by={heading.by} digest={heading.digest or '-'}"
    yield f"{start}{' phase=link' * (heading.phase == 'link')} path=".encode() + path
    for decision in _sorted(section.decisions):
        words = [decision.key.encode(), _WORDS[decision.inline]]
        if decision.caller or decision.callee:
            words += [quoted(decision.caller), quoted(decision.callee)]
        yield b" ".join(words).rstrip(b" ")
    for choice in sorted(section.passes, key=lambda choice: choice.identity):
        words = [choice.key.encode(), choice.action.encode(), choice.name.encode(), quoted(choice.function)]
        yield b" ".join(words).rstrip(b" ")


def _order(heading: Heading) -> tuple[object, ...]:
    return heading.llvm, heading.level, heading.by, heading.phase, heading.digest or ""


def _sorted(decisions: Iterable[Decision]) -> list[Decision]:
    def order(decision: Decision) -> tuple[str, int]:
        key, _, occurrence = decision.key.partition(".")
        return key, int(occurrence or 0)

    return sorted(decisions, key=order)

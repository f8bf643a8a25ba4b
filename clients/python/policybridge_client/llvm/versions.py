"""The LLVM version of a compiler, read once per compiler and cached on disk."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from policybridge_client.llvm.compilers import is_compiler

UNKNOWN: Final = 0

_VERSION: Final = re.compile(rb"(?:clang|LLVM) version (\d+)")
_NAME: Final = re.compile("[a-z0-9_.]{1,32}")
_NO_NAME: Final = "?"
"""Stands in the cache for an answer that is no name."""

_TIMEOUT: Final = 30.0


def llvm_version(start: Sequence[str]) -> int:
    """Return the LLVM major version of the compiler that ``start`` starts, or `UNKNOWN`.

    Asking the compiler takes 10 to 90 ms, too long for each file of a build. So the version is cached in the user's
    cache folder, keyed by the compiler's path, size and modification time.
    """
    return remembered(start, "", lambda: _ask(start))


def remembered(start: Sequence[str], question: str, ask: Callable[[], int]) -> int:
    """Return the answer of ``ask`` about a compiler, cached on disk; `UNKNOWN` is not cached.

    Args:
        start: the words that start the compiler.
        question: names the fact; a compiler has several.
        ask: determines the answer.

    """
    kept = _place(start, question)
    if kept is None:
        return ask()
    try:
        return int(kept.read_text(encoding="ascii"))
    except (OSError, ValueError):
        answer = ask()
        if answer != UNKNOWN:
            _keep(kept, str(answer))
        return answer


def remembered_name(start: Sequence[str], question: str, ask: Callable[[], str | None]) -> str:
    """Return the answer of ``ask`` as `remembered`: a name of small letters, digits, dots and underscores.

    Empty for another answer, and where none can be stored: then nothing is asked. ``None`` is not cached.
    """
    kept = _place(start, question)
    if kept is None:
        return ""
    name = ""
    with suppress(OSError, ValueError):
        name = kept.read_text(encoding="ascii")
    if not _NAME.fullmatch(name) and name != _NO_NAME:
        answer = ask()
        if answer is None:
            return ""
        name = answer if _NAME.fullmatch(answer) else _NO_NAME
        _keep(kept, name)
    return "" if name == _NO_NAME else name


def _place(start: Sequence[str], question: str) -> Path | None:
    """Give the file for an answer; ``None``: the compiler's file is not known."""
    identity = _identity(start)
    if identity is None:
        return None
    return _cache_folder() / hashlib.sha256(os.fsencode(f"{identity}{question}")).hexdigest()[:32]


def _ask(start: Sequence[str]) -> int:
    try:
        said = subprocess.run(
            [*start, "--version"], stdin=subprocess.DEVNULL, capture_output=True, timeout=_TIMEOUT, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return UNKNOWN
    match = _VERSION.search(said.stdout)
    return int(match[1]) if match else UNKNOWN


def _identity(start: Sequence[str]) -> str | None:
    file = _own_zig(start[-4]) if tuple(start[-3:-1]) == ("-m", "ziglang") else _file(start)
    if file is None:
        return None
    stat = file.stat()
    return f"{file} {stat.st_size} {stat.st_mtime_ns}"


def _file(start: Sequence[str]) -> Path | None:
    program = shutil.which(start[-2] if len(start) > 1 and start[-1] in ("cc", "c++", "clang") else start[-1])
    file = Path(program).resolve() if program else None
    # A link to a wrapper such as ccache does not identify the compiler.
    return file if file and is_compiler(file.name) else None


def _own_zig(python: str) -> Path | None:
    # The zig of another Python cannot be identified from here.
    if shutil.which(python) != sys.executable:
        return None
    spec = find_spec("ziglang")
    return Path(spec.origin).with_name("zig").resolve() if spec and spec.origin else None


def _cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "policybridge" / "llvm-versions"


def _keep(kept: Path, answer: str) -> None:
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=kept.parent, delete=False, encoding="ascii") as file:
            file.write(answer)
        Path(file.name).replace(kept)
    except OSError:
        # If the cache cannot be written, the next compilation asks again.
        return

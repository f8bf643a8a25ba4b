"""The folder of wrappers that stands first on PATH while a build is recorded.

Each wrapper is a shell script of the name of a tool that the build could find: it notes its working folder and its
arguments and becomes the tool (exec), so that exit status, output and signals are the tool's own. It costs some
milliseconds a command.

The folder stands in the user's cache and stays there: CMake and configure write the compiler's path into the build
folder, which must go on working after the recording.
"""

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from importlib.resources import as_file, files
from pathlib import Path
from typing import Final

from policybridge_client.decisions.finding import OFF

RECORD: Final = "POLICYBRIDGE_RECORD"
"""The variable that names the folder for notes."""

_VERSION: Final = r"(-\d+(\.\d+)*)?"
COMPILERS: Final = re.compile(rf"(?P<target>[\w.+-]+-)?(cc|c\+\+|gcc|g\+\+|clang|clang\+\+|c89|c99){_VERSION}")
LINKERS: Final = re.compile(rf"([\w.+-]+-)?(ld|ld\.bfd|ld\.gold|ld\.lld|ld\.mold|mold|lld){_VERSION}")
ARCHIVERS: Final = re.compile(rf"([\w.+-]+-)?(ar|gcc-ar|llvm-ar){_VERSION}")
LAUNCHERS: Final = re.compile(r"ccache|sccache|distcc|icecc")

_UNSAFE: Final = re.compile(r"[^\w@%+=,./-]")
"""What splits a path in two in PATH, in LD_PRELOAD, or where a build uses CC without quotes."""

_VARIABLES: Final = ("CC", "CXX", "LD", "AR", "CPP")

ANY: Final = "policybridge-wrapper"
"""The wrapper for a tool that POLICYBRIDGE_TOOL names."""

_LIBRARY: Final = "policybridge-preload.so"
_COMPILERS: Final = ("cc", "gcc", "clang")


def is_tool(name: str) -> bool:
    """Tell whether a program of this name compiles, links or archives, or starts what does."""
    return any(kind.fullmatch(name) for kind in (COMPILERS, LINKERS, ARCHIVERS, LAUNCHERS))


def recording_environment(notes: Path, environment: Mapping[str, str], *, preload: bool = True) -> dict[str, str]:
    """Give the environment in which a build notes its commands in the folder ``notes``.

    With ``preload``, tools that are started by their paths are noted too, by a library that is loaded into the build's
    processes, if a compiler is there to make it.
    """
    tools = dict(_on_path(environment.get("PATH", os.defpath)))
    named = {name: words for name in _VARIABLES if (words := _words(environment.get(name, "")))}
    own = {words[0]: words[0] for words in named.values() if "/" in words[0] and _is_started(words[0])}
    folder = _folder({**tools, **{_own_name(path): path for path in own}})
    changed = {
        name: shlex.join([str(folder / _own_name(words[0])), *words[1:]])
        for name, words in named.items()
        if words[0] in own
    }
    changed["PATH"] = f"{folder}{os.pathsep}{environment.get('PATH', os.defpath)}"
    loaded = preloading(folder, tools, environment) if preload else {}
    # A store that the build's launcher found would be part of its commands.
    return {**environment, **changed, **loaded, RECORD: str(notes), OFF: "1"}


def _is_started(path: str) -> bool:
    """Tell whether a path is a tool, by its name or by that of the file behind a link; a script starts tools itself."""
    return os.access(path, os.X_OK) and is_tool(tool_name(path))


def tool_name(path: str) -> str:
    """Name a tool: as it is started, or as the file is named to which that leads (``mycc``, a link to ``clang-22``)."""
    name = Path(path).name
    return name if is_tool(name) else Path(os.path.realpath(path)).name


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return []


def _own_name(path: str) -> str:
    """Name the wrapper of a tool that a variable names by its path: there may be others of its name."""
    return f"{hashlib.sha256(os.fsencode(path)).hexdigest()[:8]}/{Path(path).name}"


def _on_path(path: str) -> Iterator[tuple[str, str]]:
    """Find the tools on PATH: name and file. The first of a name comes last."""
    for folder in reversed(path.split(os.pathsep)):
        try:
            entries = sorted(Path(folder or ".").absolute().iterdir())
        except OSError:
            continue
        for file in entries:
            if is_tool(file.name) and os.access(file, os.X_OK) and file.is_file() and not _is_wrapper(file):
                yield file.name, str(file)


def _is_wrapper(file: Path) -> bool:
    return file.parent.name.startswith("record-") and (file.parent / ANY).exists()


def _folder(tools: Mapping[str, str]) -> Path:
    """Write the wrappers of these tools, unless they are there."""
    template = files("policybridge_train.corpus").joinpath("wrapper.sh").read_text(encoding="utf-8")
    table = "\0".join((template, *(f"{name}={file}" for name, file in sorted(tools.items()))))
    digest = hashlib.sha256(os.fsencode(table)).hexdigest()[:16]
    texts = {**{name: shlex.quote(file) for name, file in tools.items()}, ANY: '"$POLICYBRIDGE_TOOL"'}
    folder = cache() / f"record-{digest}"
    with suppress(OSError):
        if _UNSAFE.search(str(folder)) is None:
            if not all((folder / name).exists() for name in texts):
                _write(folder, template, texts)
            return folder
    # The user's cache cannot be written, or not be named where builds name their tools.
    folder = Path(tempfile.mkdtemp(prefix="policybridge-"), f"record-{digest}")
    _write(folder, template, texts)
    return folder


def _write(folder: Path, template: str, texts: Mapping[str, str]) -> None:
    """Write the wrappers: by name, the word that names the tool in the shell's language."""
    for name, tool in texts.items():
        wrapper = folder / name
        wrapper.parent.mkdir(parents=True, exist_ok=True)
        text = template.replace("@TOOL@", tool).replace("@FOLDER@", shlex.quote(str(folder)))
        # Another build may be starting the same wrapper.
        fresh = wrapper.with_name(f"{wrapper.name}.{os.getpid()}.new")
        fresh.write_bytes(os.fsencode(text))
        fresh.chmod(0o755)
        fresh.replace(wrapper)


def cache() -> Path:
    """Give the user's folder for what can be made again."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home).absolute() / "policybridge"


def preloading(folder: Path, tools: Iterable[str], environment: Mapping[str, str]) -> dict[str, str]:
    """Give the variables that load the library into a build; none, if no compiler here can make it, or name it.

    The library sends tools that a build starts by their paths through a wrapper; see preload.c.
    """
    library = folder / _LIBRARY
    # The loader would split the path in two there.
    if re.search(r"[\s:]", str(library)):
        return {}
    if not library.exists() and not any(_compile(compiler, library) for compiler in _candidates(tools)):
        return {}
    before = environment.get("LD_PRELOAD", "")
    sanitizer = environment.get("ASAN_OPTIONS", "")
    return {
        "LD_PRELOAD": f"{library}:{before}" if before else str(library),
        "POLICYBRIDGE_WRAPPER": str(folder / ANY),
        # A program of the build's own with an address sanitizer would not start beside another library.
        "ASAN_OPTIONS": f"{sanitizer}:verify_asan_link_order=0" if sanitizer else "verify_asan_link_order=0",
    }


def _candidates(tools: Iterable[str]) -> list[str]:
    clangs = sorted(name for name in tools if name.startswith("clang-"))
    return [path for name in (*_COMPILERS, *clangs) if (path := shutil.which(name))]


def _compile(compiler: str, library: Path) -> bool:
    fresh = library.with_name(f"{library.name}.{os.getpid()}.new")
    with as_file(files("policybridge_train.corpus").joinpath("preload.c")) as source:
        command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(fresh), str(source), "-ldl"]
        ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if ended.returncode == 0:
        fresh.replace(library)
    return ended.returncode == 0

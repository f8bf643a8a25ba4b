"""Source packages by apt, without root: with a configuration of our own beside the machine's.

The machine's own sources give the addresses (``deb`` becomes ``deb-src``), its keys and its settings are used as they
are, and nothing of apt's state is changed: lists and packages are kept in folders of ours (apt.conf(5), Dir).
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from policybridge_core.errors import NotFoundError, PreconditionError, UnavailableError

ETC: Final = Path("/etc/apt")
"""The machine's own settings."""
_SHOWN: Final = 300
_SECONDS: Final = 600


@dataclass(frozen=True)
class Apt:
    """apt with source packages enabled.

    Attributes:
        folder: holds the configuration and the lists.

    """

    folder: Path

    @classmethod
    def prepare(cls, folder: Path, etc: Path = ETC) -> "Apt":
        """Write the configuration and fetch the lists of source packages.

        Raises:
            PreconditionError: this machine has no apt or no dpkg-source, or apt knows no archive.
            UnavailableError: no list can be fetched, and there is none from before.

        """
        missing = [tool for tool in ("apt-get", "dpkg-source") if shutil.which(tool) is None]
        if missing:
            raise PreconditionError(f"{' and '.join(missing)}: not found; this needs Debian's or Ubuntu's dpkg-dev")
        sources = dict(_sources(etc))
        if not sources:
            raise PreconditionError(f"{etc} names no archive of packages: add one to sources.list")
        apt = cls(folder)
        apt._configure(sources)
        apt._update()
        return apt

    def download(self, package: str, folder: Path) -> Path:
        """Fetch a source package into a folder; give its ``.dsc``.

        Raises:
            NotFoundError: no archive has it.
            UnavailableError: it cannot be fetched.

        """
        first = self._download(package, folder)
        if isinstance(first, Path):
            return first
        if "Unable to find a source package" in first:
            raise NotFoundError(f"no archive of apt's has a source package {package!r}")
        # A mirror may lack the newest version, and have the one before.
        for version in self._versions(package):
            found = self._download(f"{package}={version}", folder)
            if isinstance(found, Path):
                return found
        raise UnavailableError(f"apt-get source {package}: {first}")

    def _download(self, package: str, folder: Path) -> Path | str:
        """Fetch a source package; give its ``.dsc``, or what apt says."""
        for old in folder.glob("*.dsc"):
            old.unlink()
        ended = self._run("apt-get", "source", "--download-only", package, folder=folder)
        found = list(folder.glob("*.dsc"))
        return found[0] if ended.returncode == 0 and found else _errors(ended.stderr)

    def _versions(self, package: str) -> list[str]:
        said = self._run("apt-cache", "showsrc", "--only-source", package, folder=self.folder).stdout
        return re.findall(r"(?m)^Version: (\S+)$", said)

    def install_dependencies(self, packages: Sequence[str]) -> None:
        """Install the build dependencies of these packages; this needs root.

        Raises:
            UnavailableError: it cannot be fetched or installed.

        """
        for package in packages:
            ended = self._run("apt-get", "build-dep", "-y", "--no-install-recommends", package, folder=self.folder)
            if ended.returncode:
                raise UnavailableError(f"apt-get build-dep {package}: {_errors(ended.stderr)}")

    def _configure(self, sources: Mapping[str, str]) -> None:
        for part in ("sources", "lists/partial", "cache/archives/partial"):
            (self.folder / part).mkdir(parents=True, exist_ok=True)
        for old in (self.folder / "sources").iterdir():
            old.unlink()
        for name, text in sources.items():
            (self.folder / "sources" / name).write_text(text, encoding="utf-8")
        lines = {
            "Dir::State::Lists": self.folder / "lists",
            "Dir::Cache": self.folder / "cache",
            "Dir::Etc::sourcelist": "/dev/null",
            "Dir::Etc::sourceparts": self.folder / "sources",
        }
        text = "".join(f'{name} "{value}";\n' for name, value in lines.items())
        (self.folder / "apt.conf").write_text(text, encoding="utf-8")

    def _update(self) -> None:
        ended = self._run("apt-get", "update", folder=self.folder)
        if not list((self.folder / "lists").glob("*_Sources*")):
            raise UnavailableError(
                f"no list of source packages can be fetched; is this machine offline? {_errors(ended.stderr)}"
            )

    def _run(self, tool: str, *words: str, folder: Path) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [tool, "-q", *words],
            cwd=folder,
            env={**os.environ, "APT_CONFIG": str(self.folder / "apt.conf"), "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            check=False,
        )


def _sources(etc: Path) -> Iterator[tuple[str, str]]:
    """Give the machine's sources as sources of source packages: file name and text."""
    for file in sorted([etc / "sources.list", *etc.glob("sources.list.d/*")]):
        try:
            text = file.read_text(encoding="utf-8", errors="replace")
        except (FileNotFoundError, PermissionError):
            continue
        if file.suffix == ".list" and (lines := _lines(text)):
            yield file.name, lines
        elif file.suffix == ".sources" and (stanzas := _stanzas(text)):
            yield file.name, stanzas


def _lines(text: str) -> str:
    """Change sources.list(5)'s one-line style."""
    found = [line.split(maxsplit=1)[1] for line in text.splitlines() if re.match(r"\s*deb(-src)?\s+\S", line)]
    return "".join(f"deb-src {line}\n" for line in dict.fromkeys(found))


def _stanzas(text: str) -> str:
    """Change sources.list(5)'s deb822 style."""
    types = re.compile(r"(?im)^types:.*$")
    disabled = re.compile(r"(?im)^enabled:\s*(no|false|0)\s*$")
    stanzas = [one for one in re.split(r"\n\s*\n", text) if types.search(one) and not disabled.search(one)]
    return "".join(types.sub("Types: deb-src", stanza).strip("\n") + "\n\n" for stanza in stanzas)


def _errors(said: str) -> str:
    lines = [line[3:].strip() for line in said.splitlines() if line.startswith("E:")]
    return "; ".join(lines)[:_SHOWN] or said.strip()[-_SHOWN:] or "it says nothing"

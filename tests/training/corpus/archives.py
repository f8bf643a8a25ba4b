"""Archives of Debian's source packages in a folder, for tests."""

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.training.corpus.projects import write_project

_CONTROL: Final = (
    "Source: {0}\nMaintainer: Nobody <nobody@localhost>\n\nPackage: {0}\nArchitecture: any\nDescription: x\n"
)
_CHANGELOG: Final = (
    "{0} (1.0) unstable; urgency=low\n\n  * First.\n\n -- Nobody <nobody@localhost>  Thu, 01 Jan 1970 00:00:00 +0000\n"
)


def write_archive(folder: Path, packages: Mapping[str, Mapping[str, str]]) -> None:
    """Write packages with these files, and ``etc``: the settings of an apt that knows the archive."""
    for name, files in packages.items():
        debian = {
            "debian/control": _CONTROL.format(name),
            "debian/changelog": _CHANGELOG.format(name),
            "debian/rules": "#!/usr/bin/make -f\n%:\n\tdh $@\n",
            "debian/source/format": "3.0 (native)\n",
        }
        write_project(folder / name, {**files, **debian})
        _run(folder, "dpkg-source", "-b", name)
    (folder / "Sources").write_text(_run(folder, "dpkg-scansources", "."))
    write_project(folder / "etc", {"sources.list": f"# ours\ndeb [trusted=yes] file:{folder} ./\n"})


def _run(folder: Path, *command: str) -> str:
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout

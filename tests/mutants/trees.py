"""A copy of the tree in which a mutant is tested; the tree itself is never changed."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.mutants.operators import Mutant

ROOT: Final = Path(__file__).parents[2]


class Tree:
    """A copy of all files of the tree.

    Args:
        folder: of the copy; what lies there goes.

    """

    def __init__(self, folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        self._folder = folder
        self._changes = 0
        listed = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        for name in subprocess.run(listed, check=True, capture_output=True, text=True).stdout.split("\0"):
            if name and (ROOT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, folder / name)

    def failure(self, tests: Sequence[str], seconds: float, mutant: Mutant | None = None) -> str:
        """Run tests, with a mutant in the tree; give the test that fails, or nothing if all pass."""
        if mutant is None:
            return self._run(tests, seconds)
        source = self.text(mutant.path)
        self._write(mutant.path, mutant.applied(source))
        try:
            return self._run(tests, seconds)
        finally:
            self._write(mutant.path, source)

    def text(self, path: str) -> str:
        """Give the text of a file."""
        return (self._folder / path).read_text()

    def _write(self, path: str, text: str) -> None:
        # Python takes compiled files for fresh if the source has the same size and second.
        self._changes += 1
        file = self._folder / path
        file.write_text(text)
        os.utime(file, (self._changes, self._changes))

    def _run(self, tests: Sequence[str], seconds: float) -> str:
        inside = [Path(each) for each in sys.path if Path(each).is_relative_to(ROOT)]
        roots = [str(self._folder / each.relative_to(ROOT)) for each in inside if ".venv" not in each.parts]
        words = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--timeout", "120", *tests]
        process = subprocess.Popen(
            words,
            cwd=self._folder,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(roots)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.communicate()
            return f"no end within {seconds:.0f} s"
        failed = [line for line in output.splitlines() if line.startswith(("FAILED ", "ERROR tests"))]
        told = failed[0].partition(" - ")[0].partition(" ")[2] if failed else f"exit status {process.returncode}"
        return told if process.returncode else ""

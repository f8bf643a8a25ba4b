"""``policybridge corpus record``: a corpus from any build command."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from policybridge_client.llvm.signals import AWAKE_WITHIN
from policybridge_train.corpus.building import running
from policybridge_train.corpus.notes import BuildCommand, read_notes
from policybridge_train.corpus.wrappers import recording_environment


def record(command: Sequence[str], folder: Path, *, preload: bool = True) -> tuple[int, list[BuildCommand]]:
    """Run a build and give its exit status and the commands that it ran; see ``recording_environment`` for ``preload``.

    A KeyboardInterrupt ends all processes of the build; this gives the commands that it ran until then, and status 130.

    Raises:
        OSError: the command cannot be started.

    """
    with tempfile.TemporaryDirectory(prefix="policybridge-record-") as notes:
        environment = recording_environment(Path(notes), os.environ, preload=preload)
        try:
            with running(command, environment, folder) as process:
                status = _status(process)
        except KeyboardInterrupt:
            sys.stderr.write("policybridge corpus: interrupted; the build's processes are ended\n")
            status = 130
        return status if status >= 0 else 128 - status, read_notes(Path(notes))


def _status(build: "subprocess.Popen[bytes]") -> int:
    while True:
        with suppress(subprocess.TimeoutExpired):
            return build.wait(AWAKE_WITHIN)

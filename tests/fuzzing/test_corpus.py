"""Every input in the tree, without a fuzzer; and that the fuzzer finds what it looks for.

All is run in processes of its own: the stubs of the server have the names of those of tritonclient, which other tests
import.
"""

import subprocess
import sys
from pathlib import Path

_CORPUS = Path(__file__).parent / "corpus"

_FAULT = """
import policybridge_serdes.training_log as log
from policybridge_serdes.training_log import TrainingLogReader

def line(reader):
    data = reader._file.readline()
    if data.startswith(b'{"features"') and data.count(b"[") > 1:
        raise KeyError("a fault that only a header reaches")
    return data

TrainingLogReader._line = line
from tests.fuzzing.one import main
main()
"""


def test_each_target_keeps_its_promise_on_every_input_of_the_corpus() -> None:
    command = [sys.executable, "-m", "tests.fuzzing.replay"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_fuzzer_finds_a_fault_that_is_put_into_a_decoder(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _FAULT, "training_log", "-max_total_time=120", f"-artifact_prefix={tmp_path}/"]
    done = subprocess.run([*command, str(_CORPUS / "training_log")], capture_output=True, text=True, check=False)
    assert done.returncode
    assert "KeyError" in done.stdout + done.stderr

"""The examples that train with Stable-Baselines3 and with RLlib."""

import re
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.locks import one_at_a_time
from tests.needs import ROOT
from tests.training.corpora import write_corpus

pytest.importorskip("stable_baselines3")

EXAMPLES = ROOT / "examples" / "gymnasium"
SOURCE = """
int sink(int);
static int f(int x) { for (int i = 0; i < x; i++) x += sink(x) ^ sink(i); return sink(x + 1) - sink(x - 1); }
int g(int x) { return f(x) + f(x + 3); }
"""


@pytest.mark.parametrize(
    ("example", "sizes"),
    [
        ("train.py", ["--steps", "64", "--rollout", "16"]),
        ("rllib.py", ["--iterations", "2", "--decisions", "16", "--runners", "1"]),
    ],
)
def test_the_example_trains_and_says_what_the_policy_made_of_the_modules(
    tmp_path: Path, example: str, sizes: list[str]
) -> None:
    corpus = write_corpus(tmp_path, {"p/f.c": SOURCE, "p/quiet.c": "int f(void) { return 1; }\n"}, compiler="zig")
    words = [sys.executable, str(EXAMPLES / example), str(corpus.folder), *sizes]
    # Clusters that start on one machine at the same moment may take the same ports.
    with one_at_a_time(ROOT / ".cache" / "ray") if example == "rllib.py" else nullcontext():
        done = subprocess.run(words, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"text: \d+ bytes by LLVM, \d+ by the policy \([-+][\d.]+%\)\n", done.stdout)

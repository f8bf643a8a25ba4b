"""The example that trains with Stable-Baselines3."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.training.corpora import write_corpus

pytest.importorskip("stable_baselines3")

EXAMPLE = Path(__file__).parents[2] / "examples" / "gymnasium" / "train.py"
SOURCE = """
int sink(int);
static int f(int x) { for (int i = 0; i < x; i++) x += sink(x) ^ sink(i); return sink(x + 1) - sink(x - 1); }
int g(int x) { return f(x) + f(x + 3); }
"""


def test_the_example_trains_and_says_what_the_policy_made_of_the_modules(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path, {"p/f.c": SOURCE, "p/quiet.c": "int f(void) { return 1; }\n"}, compiler="zig")
    words = [sys.executable, str(EXAMPLE), str(corpus.folder), "--steps", "64", "--rollout", "16"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"text: \d+ bytes by LLVM, \d+ by the policy \([-+][\d.]+%\)\n", done.stdout)

"""``python -m tests.fuzzing``: run each target for some time, with atheris or libFuzzer, from the corpus."""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from tests.fuzzing.native import NATIVE, build
from tests.fuzzing.targets import TARGETS

CORPUS: Final = Path(__file__).parent / "corpus"
ALL: Final = (*TARGETS, *NATIVE)
_LIMITS: Final = ("-max_len=4096", "-timeout=25", "-rss_limit_mb=4096")
"""Bytes of an input, seconds that one may take, and MB that a fuzzer may take."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the targets; the exit status is 1 if one of them failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzzing", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(ALL)}; all by default")
    parser.add_argument("--seconds", type=int, default=60, help="for each target (default: 60)")
    parser.add_argument("--keep", type=Path, help="add inputs that reach new lines to this folder, one folder a target")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="targets at once (default: one a core)")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.targets if name not in ALL]
    if unknown:
        parser.error(f"no target {unknown[0]!r}; there are {', '.join(ALL)}")
    with ThreadPoolExecutor(options.jobs) as pool:
        done = pool.map(lambda name: fuzz(name, options.seconds, options.keep), options.targets or ALL)
        failed = [_report(*each) for each in done]
    return 1 if any(failed) else 0


def fuzz(name: str, seconds: int, keep: Path | None = None) -> "tuple[str, subprocess.CompletedProcess[str]]":
    """Run one target in a process of its own; the process fails if the target does."""
    with tempfile.TemporaryDirectory(prefix="pb-fuzz-") as scratch:
        found = keep / name if keep else Path(scratch) / "found"
        found.mkdir(parents=True, exist_ok=True)
        try:
            program = [str(build(name))] if name in NATIVE else [sys.executable, "-m", "tests.fuzzing.one", name]
        except RuntimeError as error:
            return name, subprocess.CompletedProcess([name], 1, "", str(error))
        limits = [f"-max_total_time={seconds}", *_LIMITS, f"-artifact_prefix={scratch}/"]
        seeds = [str(CORPUS / name)] if (CORPUS / name).is_dir() else []
        done = subprocess.run(
            [*program, *limits, str(found), *seeds], capture_output=True, text=True, errors="replace", check=False
        )
        for artifact in Path(scratch).glob("*-*"):
            done.stderr += f"the input of {artifact.name}: {artifact.read_bytes()!r}\n"
        return name, done


def _report(name: str, done: "subprocess.CompletedProcess[str]") -> bool:
    runs = [line for line in done.stderr.splitlines() if line.startswith("Done ")]
    print(f"{name:15} {runs[-1] if runs and not done.returncode else f'status {done.returncode}'}", flush=True)
    if done.returncode:
        print(done.stdout[-2000:], done.stderr[-6000:], sep="\n", flush=True)
    return bool(done.returncode)


if __name__ == "__main__":
    sys.exit(main())

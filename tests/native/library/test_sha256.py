"""The hash by which cached forms are compared: by the processor's instructions where it has them, and without."""

import subprocess
from hashlib import sha256

import numpy as np

from tests.native.conftest import Target


def test_short_and_long_texts_have_the_hash_of_the_standard(native: Target) -> None:
    data = np.random.default_rng(1).bytes(100_000)
    program = native("policybridge-sha256") / "bin" / "policybridge-sha256"
    short = range(130)  # on both sides of a block
    # A process hashes its first 64 blocks, of up to 20 short texts, without the processor's instructions.
    alone = [short[start : start + 20] for start in range(0, len(short), 20)]
    for sizes in (*alone, [100_000, *short, *range(4090, 4230), 65_536]):
        done = subprocess.run([program, *map(str, sizes)], input=data, capture_output=True, check=True)
        assert done.stdout.decode().split() == [sha256(data[:size]).hexdigest() for size in sizes]

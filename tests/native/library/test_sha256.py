"""The hash by which cached forms are compared: by the processor's instructions where it has them, and without."""

import subprocess
from hashlib import sha256

import numpy as np

from tests.native.conftest import Target


def test_short_and_long_texts_have_the_hash_of_the_standard(native: Target) -> None:
    data = np.random.default_rng(1).bytes(100_000)
    # On both sides of a block, and of the size from which the processor's instructions hash.
    sizes = [*range(130), *range(4090, 4230), 65_536, 100_000]
    program = native("policybridge-sha256") / "bin" / "policybridge-sha256"
    done = subprocess.run([program, *map(str, sizes)], input=data, capture_output=True, check=True)
    assert done.stdout.decode().split() == [sha256(data[:size]).hexdigest() for size in sizes]

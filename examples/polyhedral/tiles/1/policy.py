from itertools import product

import numpy as np

SIZES = (4, 8, 16, 32, 64, 128)
LINE, SETS, WAYS = 16, 64, 8  # of a cache of 32 KiB; a line is 16 floats


class Policy:
    """Estimates the cycles of each tile, and takes the one with the fewest."""

    def evaluate(self, observation, session):
        extents = observation["extents"][observation["extents"] > 0]
        choices = product(*({*(size for size in SIZES if size < extent), extent} for extent in extents.tolist()))
        best = min(choices, key=lambda sizes: cycles(np.array(sizes), extents, observation))
        return [*best, *[0] * (4 - len(best))]


def cycles(sizes, extents, observation):
    whole = np.where(extents % sizes, 2, 1).prod()  # a loop that ends early is compiled worse
    return 10 * misses(sizes, extents, observation) + 8 * whole * extents.prod() / sizes[-1]


def misses(sizes, extents, observation):
    moves, lengths = np.abs(observation["coefficients"])[:, :, : len(sizes)], observation["lengths"]
    # Elements below each other share a few sets of the cache if a row is a multiple of many lines.
    places = WAYS * SETS / np.maximum(np.gcd(SETS * LINE, lengths[:, 1]) / LINE, 1)
    tiles = np.ceil(extents / sizes)
    for first in range(len(sizes) + 1):  # how much stays in the cache: all tiles of the loops from the first on, or one
        box = np.where(np.arange(len(sizes)) < first, sizes, extents)
        rows, columns = np.minimum(observation["boxes"] + moves @ (box - 1), lengths).T
        lines = rows * (1 + (columns - 1) / LINE)
        if lines.sum() < 0.75 * WAYS * SETS and (rows / places).sum() <= 1:
            stays = first > 0 and moves[:, :, first - 1].max(axis=1) == 0
            return (lines * tiles[:first].prod() / np.where(stays, tiles[first - 1], 1)).sum()
    return extents.prod() * len(lines)

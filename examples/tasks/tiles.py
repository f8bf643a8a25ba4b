"""Tile sizes of matrix products: a compiler without LLVM, whose cost is the misses of a model of a cache."""

from collections import OrderedDict
from itertools import product
from random import Random

from policybridge_client import ElementType, TensorSpec, open_runner
from policybridge_core.errors import PolicyBridgeError
from policybridge_train.compiling.result import CompileResult
from policybridge_train.tasks.task import Case

SIZES = (8, 16, 32, 64, 128)  # columns of a tile
LINES, LINE = 128, 8  # lines of the cache, and numbers in each line


class Tiles:
    """A program has four loop nests, whose tile sizes a policy chooses."""

    name = "tiles"
    features = [TensorSpec(name, ElementType.INT64) for name in ("rows", "columns", "depth", "usual")]
    advice = TensorSpec("tile", ElementType.INT64)  # a position in SIZES
    default = "usual"  # the feature that is the compiler's own decision

    def cases(self, corpus):
        return [Case(f"p{project}/{number}", f"p{project}") for project, number in product(range(16), range(2))]

    def run(self, case, asking):
        costs, draw = {}, Random(case.name)
        explored = asking.exploration and asking.exploration.of_module(case.name)
        asked = {"policy": asking.policy, "labels": asking.labels, "exploration": explored}
        try:
            with open_runner(asking.server, features=self.features, advice=self.advice, **asked) as runner:
                for nest in "abcd":
                    runner.context(nest)
                    shape = {name: draw.randrange(8, 48) for name in ("rows", "columns", "depth")}
                    for name, value in (shape | {"usual": 2}).items():
                        runner[name] = value
                    costs[nest] = float(misses(**shape, tile=SIZES[int(runner.evaluate()) % len(SIZES)]))
                return CompileResult(costs, [runner.session_id], {"misses": sum(costs.values())})
        except PolicyBridgeError as error:
            return CompileResult.failed(str(error))

    def end(self): ...  # there is no process to end

    def units(self, observations, contexts):
        return list(contexts)


def misses(rows, columns, depth, tile):
    """Run ``c[i, j] += a[i, k] * b[k, j]`` tile by tile, and count the misses of a cache of the last LINES lines."""
    cache, missed = OrderedDict(), 0
    for first, i, k in product(range(0, columns, tile), range(rows), range(depth)):
        columns_here = range(first // LINE, (min(first + tile, columns) - 1) // LINE + 1)
        for line in [("a", i, k // LINE)] + [at for j in columns_here for at in (("b", k, j), ("c", i, j))]:
            missed += line not in cache
            cache[line] = True
            cache.move_to_end(line)
            if len(cache) > LINES:
                cache.popitem(last=False)
    return missed

"""Does llvm-mca predict time better than counts do? ``python -m tests.measures.estimates --work DIR --plugins DIR``.

DIR is a folder of ``python -m tests.measures.cycles --levels``, whose programs at LLVM's levels were timed beside -O2.
Each is built again and counted on its first input: by instructions, by the estimate of cycles, and by llvm-mca's
cycles of hot blocks with the estimate's misses and mispredicted branches, a fourth of a cycle for each of its units.
Prints the correlation of each with the time, both as logarithms of the ratio to -O2. Needs Debian's packages of
``cycles``, and llvm-22.
"""

import argparse
import math
import os
import re
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from policybridge_train.speed.making import Making
from policybridge_train.tasks.callgrind import COSTS
from tests.measures import mca
from tests.measures.cycles import LEVELS, Bench, Kept, objects_of, read_table

_WEIGHTS: Final = {name: weight for name, weight in COSTS["cycles"].items() if name not in {"Ir", "Dw", "Taken"}}
_WIDTH: Final = 4
_LINE: Final = re.compile(r"0x([0-9a-f]+) (\d+)")


def main() -> int:
    """Count, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--package", action="append", choices=sorted(read_table()), help="repeatable (default: all)")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--plugins", type=Path, required=True)
    parser.add_argument("--processor", default="native", help="llvm-mca's -mcpu (default: native)")
    arguments = parser.parse_args()
    times, estimates = list[float](), defaultdict[str, list[float]](list)
    for name in arguments.package or read_table():
        folder = arguments.work.resolve() / name
        levels = msgspec.json.decode((folder / "measured.json").read_bytes(), type=Kept).measured.levels
        bench = Bench(name, read_table()[name], folder, arguments.plugins.resolve(), 1, 1)
        counted = {level: _counted(bench, level, arguments.processor) for level in ("-O2", *LEVELS)}
        for level in LEVELS:
            times.append(math.log(levels[level]["tune"].time.factor))
            for kind, value in counted[level].items():
                estimates[kind].append(math.log(value / counted["-O2"][kind]))
        sys.stderr.write(f"{name}\n")
    for kind, values in estimates.items():
        print(f"{kind}: correlation {statistics.correlation(values, times):.3f} in {len(times)} comparisons")
    return 0


def _counted(bench: Bench, level: str, processor: str) -> Mapping[str, float]:
    with bench.making(level) as (modules, making):
        program, _ = making.linked(objects_of(modules, making), "a")
        counted, _ = making.runner.count(program)
        events = counted.events
        beside = sum(_WEIGHTS.get(name, 0) * often for name, often in events.items()) / _WIDTH
        blocks = mca.cycles(_by_address(making, program), program, processor)
    return {"instructions": events["Ir"], "estimated cycles": counted.total, "llvm-mca": blocks + beside}


def _by_address(making: Making, program: Path) -> Mapping[str, Mapping[int, int]]:
    """Read from the last run how often each instruction of the program ran, by function."""
    found = defaultdict[str, Counter[int]](Counter)
    ours, call, function, own = False, False, "", os.path.realpath(program)
    with (making.runner.folder / "callgrind.out").open(errors="replace") as lines:
        for line in lines:
            key, _, value = line.rstrip("\n").partition("=")
            if key == "ob":
                ours = value == own
            elif key == "fn":
                function = value.partition("'")[0]
            elif key == "calls":
                call = True
            elif (place := _LINE.match(line)) and not call:
                if ours:
                    found[function][int(place[1], 16)] += int(place[2])
            else:
                call = False
    return found


if __name__ == "__main__":
    sys.exit(main())

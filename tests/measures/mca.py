"""The cycles of a program by llvm-mca: those of its hot basic blocks, weighed by callgrind's counts.

A block that jumps to itself takes the cycles of a round in a steady state. Of others, processors overlap the beginning
with the blocks before: they take the mean of that and of the block's reciprocal throughput.
"""

import json
import re
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from typing import Final

_HOT: Final = 0.985
"""The share of the instructions whose blocks are read, the hottest first."""

_ROUNDS: Final = 50
_AT_ONCE: Final = 400
_PAGE: Final = 4096
_FUNCTION: Final = re.compile(r"^([0-9a-f]+) <(.*)>:$")
_INSTRUCTION: Final = re.compile(r"^\s*([0-9a-f]+):\s+(.*)$")
_JUMP: Final = re.compile(r"^j[a-z]+\s+0x([0-9a-f]+)")
_LEAVES: Final = re.compile(r"^(notrack )?(j[a-z]+|call[a-z]*|ret[a-z]*|loop[a-z]*)\b")


@dataclass(frozen=True)
class Block:
    """A basic block: how often it runs, and its instructions by address."""

    count: int
    code: Mapping[int, str]

    @property
    def instructions(self) -> int:
        """Of all runs."""
        return self.count * len(self.code)

    @property
    def is_loop(self) -> bool:
        """Whether it jumps to itself."""
        found = _JUMP.match(self.code[max(self.code)])
        return found is not None and int(found[1], 16) == min(self.code)


def cycles(counts: Mapping[str, Mapping[int, int]], program: Path, processor: str) -> float:
    """Give the cycles of a run.

    Args:
        counts: by function and address, how often each instruction ran, as callgrind's ``--dump-instr=yes`` tells.
        program: the file.
        processor: as ``-mcpu`` has it.

    """
    blocks = sorted(_blocks(counts, program), key=lambda each: -each.instructions)
    whole = sum(each.instructions for each in blocks)
    hot, seen = list[Block](), 0
    for block in blocks:
        if seen > _HOT * whole:
            break
        hot.append(block)
        seen += block.instructions
    return sum(_cycles(hot, processor)) * whole / max(1, seen)


def _blocks(counts: Mapping[str, Mapping[int, int]], program: Path) -> Iterator[Block]:
    names, code = _disassembled(program)
    # A position-independent program is loaded somewhere.
    bases = Counter(min(its) - names[name] for name, its in counts.items() if name in names)
    base = next(base for base, _ in bases.most_common() if base % _PAGE == 0)
    ran = Counter[int]()
    for its in counts.values():
        ran.update({place - base: often for place, often in its.items()})
    there = [place for place in sorted(code) if ran[place]]
    after = dict(pairwise(sorted(code)))
    targets = {int(found[1], 16) for place in there if (found := _JUMP.match(code[place]))}
    block: dict[int, str] = {}
    for place in there:
        last = next(reversed(block), None)
        if last is not None and (
            after.get(last) != place or place in targets or ran[place] != ran[last] or _LEAVES.match(code[last])
        ):
            yield Block(ran[last], block)
            block = {}
        block[place] = code[place]
    if block:
        yield Block(ran[next(iter(block))], block)


def _disassembled(program: Path) -> tuple[dict[str, int], dict[int, str]]:
    command = ["llvm-objdump-22", "-d", "--no-show-raw-insn", "--no-print-imm-hex", str(program)]
    names, code = dict[str, int](), dict[int, str]()
    for line in subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines():
        if found := _FUNCTION.match(line):
            names[found[2]] = int(found[1], 16)
        elif found := _INSTRUCTION.match(line):
            code[int(found[1], 16)] = found[2].strip()
    return names, code


def _cycles(blocks: Sequence[Block], processor: str) -> Iterator[float]:
    """Give the cycles of all runs of each block."""
    waiting = iter(blocks)
    while some := list(islice(waiting, _AT_ONCE)):
        text = "".join(_region(number, block.code.values()) for number, block in enumerate(some))
        command = ["llvm-mca-22", "-mtriple=x86_64", f"-mcpu={processor}", f"-iterations={_ROUNDS}", "-json"]
        command.append("-skip-unsupported-instructions=any")
        told = json.loads(subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout)
        views = {region["Name"]: region["SummaryView"] for region in told["CodeRegions"]}
        for number, block in enumerate(some):
            view = views[str(number)]
            round_, throughput = view["TotalCycles"] / view["Iterations"], view["BlockRThroughput"]
            yield block.count * (round_ if block.is_loop else (round_ + throughput) / 2)


def _region(number: int, code: Iterable[str]) -> str:
    lines = "\n".join(map(_assembled, code))
    return f"# LLVM-MCA-BEGIN {number}\n{lines}\n# LLVM-MCA-END\n"


def _assembled(instruction: str) -> str:
    """Give an instruction without its target, which is no address in a block alone."""
    text = re.sub(r"\s*[<#].*$", "", instruction).strip()
    if "*" in text or not _LEAVES.match(text) or text.startswith("ret"):
        return text
    return "callq *%rax" if text.startswith("call") else f"{text.split()[0]} 0"

"""Reading callgrind's output; that of real programs is in tests/native/llvm/test_inline_speed.py."""

import pytest

from policybridge_core.errors import InvalidError
from policybridge_train.tasks.callgrind import COSTS, TAKEN, read_counts

_OUTPUT = """# callgrind format
version: 1
positions: line
events: Ir
summary: 170

ob=/tmp/a program
fl=???
fn=main
0 10
cfn=f
calls=2 0
0 140
cob=/lib/libc.so
cfi=???
cfn=puts
calls=1 0
0 20

fn=f
+3 30
* 10
cfn=f'2
calls=4 0
-2 100

fn=f'2
0 100

ob=/lib/libc.so
fn=puts
0 20
"""


def test_a_function_has_its_own_instructions_and_those_of_what_it_calls_but_not_its_recursion_twice() -> None:
    counted = read_counts(_OUTPUT.encode().splitlines(), "/tmp/a program")
    assert counted.total == 170
    assert counted.own == {"main": 10, "f": 140}
    assert counted.inclusive == {"main": 170, "f": 140}


@pytest.mark.parametrize("text", [b"", b"fn=\n1\n= =\n", b"summary:\n", b"\xff\xfe=\x00\n12 x\n"])
def test_output_that_is_cut_off_or_none_is_an_error(text: bytes) -> None:
    with pytest.raises(InvalidError, match="no line 'summary:'"):
        read_counts(text.splitlines(), "/tmp/a program")


_EVENTS = """events: Ir Dr Dw I1mr D1mr D1mw ILmr DLmr DLmw Bc Bcm Bi Bim
summary: 1000 1 1 1 1 1 1 1 1 10 2 10 3

ob=/tmp/a program
fn=main
0 100 0 0 0 0 0 0 0 0 10 2
cob=/lib/libc.so
cfn=memcpy
calls=3 0
0 50 1 1 0 1
cfn=f
calls=7 0
0 400

fn=f
0 400
"""


def test_cycles_are_instructions_with_misses_and_mispredicted_branches_and_calls_outside_are_apart() -> None:
    counted = read_counts(_EVENTS.encode().splitlines(), "/tmp/a program", COSTS["cycles"])
    assert counted.total == 1000 + 1 + 30 + 2 * 40 + 3 * 100 + (2 + 3) * 10
    assert counted.own == {"main": 100 + 2 * 10, "f": 400}
    assert counted.outside == {"main": 50 + 1 + 40}
    assert counted.calls == {("main", "f"): 7}
    assert counted.inclusive == {"main": 120 + 91 + 400, "f": 400}


_JUMPS = """events: Ir
summary: 100

ob=/tmp/a program
fn=main
0x401000 60
jcnd=30/40 0x401000
0x401010
jump=5 0x401000
0x401020
jcnd=
0x401020 20
ob=/lib/libc.so
fn=memcpy
0x7000 20
jump=2 0x7000
0x7004
"""


def test_a_taken_branch_costs_a_cycle_of_its_function_and_one_that_falls_through_none() -> None:
    counted = read_counts(_JUMPS.encode().splitlines(), "/tmp/a program", COSTS["cycles"])
    assert counted.events == {"Ir": 100, TAKEN: 37}
    assert counted.total == 100 + 37
    assert counted.own == {"main": 80 + 35}
    assert read_counts(_JUMPS.encode().splitlines(), "/tmp/a program").own == {"main": 80}

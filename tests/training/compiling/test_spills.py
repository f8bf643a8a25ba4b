"""The cost of spills, from LLVM's remarks."""

from pathlib import Path

import pytest

from policybridge_train.compiling.compilation import compile_command
from policybridge_train.compiling.compiler import Compiler
from policybridge_train.compiling.limits import Limits
from policybridge_train.compiling.spills import remark_arguments, spill_costs
from policybridge_train.processes.process import compile_by
from tests.client.compilers import parameters, write_pressure
from tests.training.corpora import write_corpus

_REMARK = """--- !Missed
Pass:            regalloc
Name:            {name}
Function:        {function}
Args:
  - NumSpills:       '3'
  - TotalSpillsCost: '1.500000e+00'
  - NumReloads:      '2'
  - TotalReloadsCost: '2.000000e+00'
  - NumVRCopies:     '5'
  - TotalCopiesCost: '1.000000e+01'
  - String:          generated in function
...
"""


def test_stores_reloads_and_copies_are_weighed_as_llvm_does(tmp_path: Path) -> None:
    file = tmp_path / "remarks.yaml"
    function = _REMARK.format(name="SpillReloadCopies", function="f")
    file.write_text(_REMARK.format(name="LoopSpillReloadCopies", function="f") + function)
    assert spill_costs(file) == {"f": pytest.approx(1.5 + 4 * 2 + 0.2 * 10)}


@pytest.mark.parametrize(
    "content", [b"", b"\xff\xfe", b"--- !Missed\nName:            SpillReloadCopies\n", b"...\n...\n"]
)
def test_remarks_that_are_broken_or_cut_off_have_no_costs(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "remarks.yaml"
    file.write_bytes(content)
    assert spill_costs(file) == {}
    assert spill_costs(tmp_path / "away") == {}


@pytest.mark.parametrize("name", ["zig", *parameters("clang-19", "clang-22")])
def test_a_function_with_more_values_than_registers_costs_and_its_object_stays_the_same(
    tmp_path: Path, name: str
) -> None:
    source = write_pressure(tmp_path).read_text()
    corpus = write_corpus(tmp_path, {"p/pressure.c": source}, compiler=name, level="-O2")
    compiler, (module,) = Compiler.find(name), corpus.modules
    remarks, objects = tmp_path / "remarks.yaml", [tmp_path / "plain.o", tmp_path / "told.o"]
    for output, extra in zip(objects, ((), remark_arguments(remarks)), strict=True):
        done = compile_by(compile_command(compiler, module, output, extra), Limits())
        assert done.ok, done
    assert spill_costs(remarks)["f"] > 20
    assert objects[0].read_bytes() == objects[1].read_bytes()

"""The differential test of choices of passes, on a few programs, and its own parts."""

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from policybridge_client.decisions import ALL_FUNCTIONS, PassChoice
from tests.native.conftest import Target
from tests.native.llvm.differential.__main__ import main
from tests.native.llvm.differential.choices import random_choices
from tests.native.llvm.differential.comparing import Compared, Compiler, Disagreement, compare, compare_program, reduced
from tests.native.llvm.differential.programs import Program, write_program
from tests.native.llvm.differential.resident import Resident
from tests.native.llvm.differential.tally import Tally
from tests.native.llvm.differential.writing import Writer
from tests.native.llvm.plugins import built_plugin, need


@pytest.fixture
def compiler(native: Target, tmp_path: Path) -> Iterator[Compiler]:
    plugin = built_plugin(native, "inliner", "22")
    with Resident(need("clang-22"), tmp_path) as resident:
        yield Compiler("22", plugin, tmp_path, resident)


@pytest.mark.parametrize("seed", range(1, 25, 2))
def test_random_choices_do_not_change_what_random_programs_print(compiler: Compiler, seed: int) -> None:
    compared = compare(seed, compiler)
    assert compared.disagreements == []
    assert compared.counts["programs"] + compared.counts["modules"] + compared.counts["too long"] >= 1


def test_a_run_adds_its_programs_to_the_totals_until_there_are_enough(
    compiler: Compiler, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--plugin", str(compiler.plugin), "--tally", str(tmp_path / "tally.json"), "--programs"]
    assert main([*words, "1"]) == 0
    first = Tally.read(tmp_path / "tally.json", "22", compiler.plugin)
    assert first.counts["programs"] >= 1
    assert main([*words, str(first.counts["programs"])]) == 0
    assert Tally.read(tmp_path / "tally.json", "22", compiler.plugin) == first
    said = capsys.readouterr().out.splitlines()
    assert said[0] == said[1] == str(first)


def test_a_program_that_depends_on_optimisation_is_a_disagreement_without_choices(compiler: Compiler) -> None:
    source = compiler.folder / "program.c"
    source.write_text("""int printf(const char *, ...);
        int main(void) {
        #ifdef __OPTIMIZE__
          return printf("yes");
        #else
          return printf("no");
        #endif
        }""")
    compared = compare_program(1, Program(source, ("main",)), compiler)
    assert [(each.level, each.choices) for each in compared.disagreements] == [("Oz", []), ("O2", [])]
    assert compared.disagreements[0].said == "'yesstatus 3' is not 'nostatus 2'"


def test_a_compiler_that_stays_gives_the_status_and_output_of_each_command(compiler: Compiler) -> None:
    (compiler.folder / "wrong.c").write_text("int main(void) { return x; }\n")
    failed = compiler.resident.compile(["-c", "wrong.c"], 20)
    assert failed.status == 1
    assert "undeclared identifier 'x'" in failed.output
    told = compiler.resident.run(["sh", "-c", "echo told; echo $LD_PRELOAD; exit 7"], 20)
    assert (told.status, told.output) == (7, "told\n\n")


def test_a_command_ends_when_its_processor_time_is_over(compiler: Compiler) -> None:
    done = compiler.resident.run(["sh", "-c", "while :; do :; done"], 1)
    assert done.is_too_long
    assert compiler.resident.run(["sh", "-c", "exit 0"], 20).status == 0


def test_a_failure_is_reduced_to_the_choices_that_make_it() -> None:
    choices = [PassChoice(ALL_FUNCTIONS, "skip", f"machine-cse.{run}") for run in range(40)]
    guilty = [choices[3], choices[31]]
    assert reduced(choices, lambda tried: all(each in tried for each in guilty)) == guilty


def test_a_seed_gives_the_same_program_and_choices_again() -> None:
    texts = [Writer(random.Random(7), is_cpp=True).program() for _ in range(2)]
    assert texts[0] == texts[1]
    assert random_choices(random.Random(7), ["f"]) == random_choices(random.Random(7), ["f"])


@pytest.mark.parametrize("seed", [1, 2, 3, 5])
def test_the_functions_of_a_program_have_the_names_that_its_object_has(compiler: Compiler, seed: int) -> None:
    program = write_program(seed, compiler.folder, "22")
    assert program
    compiled = compiler.resident.compile(["-w", "-O0", "-c", program.path.name, "-o", "program.o"], 20)
    assert compiled.status == 0
    symbols = compiler.resident.run([need("llvm-nm-22"), "--defined-only", "program.o"], 20).output
    used = {line.split()[-1] for line in symbols.splitlines() if line.split()[-2] in "tTW"}
    assert used <= set(program.functions) | {"__clang_call_terminate"}


def test_totals_are_added_up_only_for_the_same_plugin(tmp_path: Path) -> None:
    need("clang-22")
    plugin, file = tmp_path / "plugin.so", tmp_path / "tally.json"
    plugin.write_bytes(b"a plugin")
    tally = Tally.read(file, "22", plugin)
    found = Disagreement(0, "Oz", (), [], "'1' is not '2'")
    tally.add(Compared(Counter(programs=1, compiles=2), [found]))
    tally.write(file)
    read = Tally.read(file, "22", plugin)
    assert (read.next_seed, read.counts["programs"], read.disagreements) == (1, 1, [str(found)])
    plugin.write_bytes(b"another plugin")
    assert Tally.read(file, "22", plugin).counts["programs"] == 0

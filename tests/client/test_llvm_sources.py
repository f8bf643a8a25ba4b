"""The source and the output that a compiler's command names."""

import pytest

from policybridge_client.llvm.compilers import clang_output, source_of


@pytest.mark.parametrize(
    ("arguments", "source", "output"),
    [
        ("-Oz -c module.c", "module.c", "module.o"),
        ("-c src/a.b.cpp", "src/a.b.cpp", "a.b.o"),
        ("-S module.c", "module.c", "module.s"),
        ("-c -emit-llvm module.c", "module.c", "module.bc"),
        ("-S -emit-llvm module.c", "module.c", "module.ll"),
        ("module.c", "module.c", "a.out"),
        ("-c a.c b.c", "", ""),
        ("-E module.c", "module.c", ""),
        ("-fsyntax-only module.c", "module.c", ""),
        ("-c -MT other.c -include first.c module.c", "module.c", "module.o"),
        ("-x c -c -", "-", "-.o"),
        ("-xc++ -c module", "module", "module.o"),
        ("-c -x c module.txt -x none other.o", "module.txt", "module.o"),
        ("-x c module other.o", "", ""),
        ("-c -x assembler module", "", ""),
        ("-c -x none module -I -xc", "", ""),
        ("a.o b.o", "", ""),
        ("", "", ""),
    ],
)
def test_the_one_source_and_the_file_that_clang_makes_of_it_are_found(arguments: str, source: str, output: str) -> None:
    words = arguments.split()
    assert (source_of(words), clang_output(words)) == (source, output)

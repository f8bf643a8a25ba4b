"""The scope of a policy: a session whose labels are outside of it is refused, over every transport."""

from collections.abc import Callable
from pathlib import Path

import pytest

from policybridge_client import open_runner
from policybridge_core.errors import OutOfScopeError, PreconditionError
from policybridge_serdes import ElementType, TensorSpec
from tests.conftest import ServerFactory
from tests.repositories import answering, write_python

X = [TensorSpec("x", ElementType.INT64)]
ADVICE = TensorSpec("advice", ElementType.INT64)
SCOPE = '[scope]\nlevel = ["Oz", "Os"]\nphase = ["compile"]'

Opening = Callable[[dict[str, str]], int]


@pytest.fixture(params=["inprocess", "socket", "grpc"])
def opened(request: pytest.FixtureRequest, tmp_path: Path, server_factory: ServerFactory) -> Opening:
    """Open a session with these labels, and give its advice on 7."""
    write_python(tmp_path, "small", answering("observation['x']"), SCOPE)
    if request.param == "inprocess":
        address = f"inprocess:{tmp_path}"
    else:
        address = str(getattr(server_factory(tmp_path), request.param))

    def advice(labels: dict[str, str]) -> int:
        with open_runner(address, policy="small", features=X, advice=ADVICE, labels=labels) as runner:
            runner["x"] = 7
            return int(runner.evaluate())

    return advice


@pytest.mark.parametrize(
    "labels", [{}, {"level": "Os"}, {"level": "Oz", "phase": "compile"}, {"level": "Oz", "project": "woff2"}]
)
def test_labels_within_the_scope_and_absent_ones_open_a_session(opened: Opening, labels: dict[str, str]) -> None:
    assert opened(labels) == 7


@pytest.mark.parametrize(
    ("labels", "fault"),
    [
        ({"level": "O2"}, r"small@1 is for level Oz or Os, and the compilation has 'O2' \(\[scope\] in policy.toml\)"),
        ({"level": "Oz", "phase": "link"}, "for phase compile, and the compilation has 'link'"),
        ({"level": ""}, "and the compilation has ''"),
        ({"level": "Oz\n\x1b[31m" + "x" * 10_000}, r"has 'Oz\\n\\x1b\[31mx{92}' "),
    ],
)
def test_a_label_outside_of_the_scope_is_refused_with_both(opened: Opening, labels: dict[str, str], fault: str) -> None:
    with pytest.raises(OutOfScopeError, match=fault):
        opened(labels)


@pytest.mark.parametrize(
    ("scope", "why"),
    [
        ("level = []", r"\[scope\] has level = \[\]; .* of 1 to 32 texts .* such as level = \['VALUE'\]$"),
        ('level = ["\\u001b[31m"]', r"has level = \['\\x1b\[31m'\]; .* printable"),
        ('"le\\nvel" = ["Oz"]', r"has le\\nvel = \['Oz'\]; .* printable"),
        ('level = "Oz"', r"has level = 'Oz'; .* such as level = \['Oz'\]$"),
        ("llvm = [22]", r"has llvm = \[22\]; .* such as llvm = \['22'\]$"),
        ("llvm = 22", r"has llvm = 22; .* such as llvm = \['22'\]$"),
        ("level = {a = ['Oz']}", "has level = {'a'"),
        ("level = [['Oz']]", "has level = "),
        ('"" = ["Oz"]', r"`key` in `\$\.scope`"),
        ('level = [""]', "1 to 256 printable characters"),
        (f"level = ['{'z' * 257}']", r"has level = \['z{58}; the values"),
        (f"level = {['Oz'] * 33}", "1 to 32 texts"),
    ],
)
def test_a_scope_without_values_or_with_too_many_is_refused_by_its_key(tmp_path: Path, scope: str, why: str) -> None:
    write_python(tmp_path, "small", answering("7"), f"[scope]\n{scope}")
    with pytest.raises(PreconditionError, match=why):
        open_runner(f"inprocess:{tmp_path}", policy="small", features=X, advice=ADVICE)

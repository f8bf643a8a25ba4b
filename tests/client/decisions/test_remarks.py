"""The names of decisions, read from LLVM's remarks."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from policybridge_client.llvm.inliner import aligned, read_remarks


def document(function: str, callee: str, cost: int, inline: bool, name: str = "InliningSuccess") -> bytes:
    return f"""--- !Passed
Pass:            inline-ml
Name:            {name}
DebugLoc:        {{ File: 'a b.c', Line: 3,
                   Column: 67 }}
Function:        {function}
Args:
  - Callee:          {callee}
  - cost_estimate:   '{cost}'
  - node_count:      '4'
  - ShouldInline:    '{str(inline).lower()}'
...
""".encode("utf-8", "surrogateescape")


def test_a_remark_tells_the_functions_the_advice_and_whether_llvm_followed_it() -> None:
    data = document("f", "_ZN1gEv", -5, True) + document("g", "h", 7, True, "InliningAttemptedAndUnsuccessful")
    first, second = read_remarks(data)
    assert (first.caller, first.callee, first.inline, first.inlined) == ("f", "_ZN1gEv", True, True)
    assert first.features == [-5, 4]
    assert (second.inline, second.inlined) == (True, False)


def test_names_are_read_as_llvm_quotes_them_in_yaml() -> None:
    data = document("'it''s'", '"\\x01odd \\\\ \\"\\t\\u20AC"', 1, False)
    (remark,) = read_remarks(data)
    assert (remark.caller, remark.callee) == ("it's", '\x01odd \\ "\t€')


def test_remarks_about_calls_that_were_not_asked_are_passed_over() -> None:
    data = [
        document("f", "a", 1, True),
        document("f", "forced", 1, True),
        document("f", "b", 2, False),
        document("f", "c", 3, True),
    ]
    remarks = read_remarks(b"".join(data))
    found = aligned(remarks, [True, False, True], np.array([[1.0, 4], [2, 4], [3, 4]]))
    assert [each and each.callee for each in found] == ["a", "b", "c"]


def test_a_decision_without_a_remark_has_no_names() -> None:
    remarks = read_remarks(document("f", "a", 1, True))
    assert aligned(remarks, [True, False], np.array([[1.0, 4], [2, 4]])) == [remarks[0], None]


@given(st.binary(), st.integers(0, 200))
def test_hostile_bytes_never_break_the_reader(noise: bytes, place: int) -> None:
    data = document("f", "a", 1, True)
    for remark in read_remarks(data[:place] + noise + data[place:]):
        assert remark.features is not None

"""References to policies."""

import pytest

from policybridge_core.errors import InvalidError
from policybridge_core.session import PolicyReference


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        ("inliner", PolicyReference("inliner")),
        ("inliner@", PolicyReference("inliner")),
        ("inliner@3", PolicyReference("inliner", version=3)),
        ("inliner@stable", PolicyReference("inliner", alias="stable")),
    ],
)
def test_a_reference_is_read_from_text(text: str, reference: PolicyReference) -> None:
    assert PolicyReference.parse(text) == reference
    assert PolicyReference.parse(str(reference)) in (reference, PolicyReference("inliner", alias="latest"))


def test_a_reference_is_by_version_or_by_alias() -> None:
    with pytest.raises(InvalidError, match="ask for version 3 or for 'stable', not both"):
        PolicyReference("inliner", version=3, alias="stable")

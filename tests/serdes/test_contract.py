"""What all rooms share: parts by name, errors by status, references to policies."""

import pytest

from policybridge_core.errors import (
    InvalidError,
    NotFoundError,
    PolicyBridgeError,
    PreconditionError,
    error_from_status,
)
from policybridge_core.plugins import Table
from policybridge_serdes import SERDES, Layout, PolicyReference, Status, load_serdes, zeros


@pytest.mark.parametrize("name", SERDES.names())
def test_every_serdes_of_the_table_can_be_loaded(name: str) -> None:
    serdes = load_serdes(name)
    assert serdes.decode(serdes.encode(zeros(Layout(())), Layout(())))[0] == Layout(())


def test_an_unknown_serdes_is_told_with_those_that_there_are() -> None:
    with pytest.raises(NotFoundError, match="unknown SerDes 'xml'; there are bitstream, json, protobuf"):
        load_serdes("xml")


def test_a_part_whose_package_is_missing_says_what_installs_it() -> None:
    table = Table("backend", "none.of.these", {"onnx": "policybridge_nowhere.backends.onnx:Backend"})
    with pytest.raises(PreconditionError, match="the Python package 'policybridge_nowhere': pip install"):
        table.load("onnx")


@pytest.mark.parametrize("status", Status)
def test_a_status_becomes_the_error_that_carries_it(status: Status) -> None:
    error = error_from_status(status, "why")
    assert error.status == status or error.status is Status.UNKNOWN
    assert str(error) == "why"


def test_every_error_survives_the_wire() -> None:
    for kind in PolicyBridgeError.__subclasses__():
        assert type(error_from_status(kind.status, "")) is kind


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

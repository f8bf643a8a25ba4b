"""The table of SerDes."""

import pytest

from policybridge_core.errors import NotFoundError
from policybridge_serdes import SERDES, Layout, load_serdes, zeros


@pytest.mark.parametrize("name", SERDES.names())
def test_every_serdes_of_the_table_can_be_loaded(name: str) -> None:
    serdes = load_serdes(name)
    assert serdes.decode(serdes.encode(zeros(Layout(())), Layout(())))[0] == Layout(())


def test_an_unknown_serdes_is_told_with_those_that_there_are() -> None:
    with pytest.raises(NotFoundError, match="unknown SerDes 'xml'; there are bitstream, json, protobuf"):
        load_serdes("xml")

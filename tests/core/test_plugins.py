"""Tables of parts by name."""

import pytest

from policybridge_core.errors import PreconditionError
from policybridge_core.plugins import Table


def test_a_part_whose_package_is_missing_says_what_installs_it() -> None:
    table = Table("backend", "none.of.these", {"onnx": "policybridge_nowhere.backends.onnx:Backend"})
    with pytest.raises(PreconditionError, match="the Python package 'policybridge_nowhere': pip install"):
        table.load("onnx")

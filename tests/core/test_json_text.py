"""JSON that commands write."""

import os
from dataclasses import dataclass

from policybridge_core.json_text import json_text


@dataclass(frozen=True)
class _File:
    name: str
    sizes: tuple[int, ...]


def test_a_name_that_is_no_utf8_is_written_with_a_replacement() -> None:
    name = os.fsdecode(b"b\xff \xc3\xbc")
    assert json_text({name: _File(name, (1, 2))}) == (
        '{\n  "b\ufffd ü": {\n    "name": "b\ufffd ü",\n    "sizes": [\n      1,\n      2\n    ]\n  }\n}'
    )

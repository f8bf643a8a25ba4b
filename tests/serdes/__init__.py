"""What the SerDes promise, and the formats that they are pinned to."""

import pytest

pytest.register_assert_rewrite(f"{__name__}.conformance")

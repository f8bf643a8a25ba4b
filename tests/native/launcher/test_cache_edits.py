"""Random edits of sources and stores behind compiler caches; ``tests.measures.cache_edits`` makes more of them."""

import os
from pathlib import Path
from random import Random

import pytest

from tests.measures.cache_edits import Builder, tried
from tests.measures.compiler_caches import opened_cache
from tests.measures.edited_project import EditedProject
from tests.native.conftest import Target
from tests.native.llvm.plugins import built_plugin, need


@pytest.mark.parametrize("name", ["ccache", "sccache"])
def test_after_random_edits_no_object_is_stale_and_none_is_compiled_twice(
    native: Target, launcher: str, tmp_path: Path, name: str
) -> None:
    plugins = built_plugin(native, "inliner", "22").parent
    ours = {key: value for key, value in os.environ.items() if not key.startswith("POLICYBRIDGE_")}
    with opened_cache(need(name), tmp_path / "cache", ours) as cache:
        builder = Builder(tmp_path / "a project", Path(launcher), plugins, cache)
        result = tried(builder, EditedProject(builder.root, Random(1), builder.logged), 10)
    assert result.is_right, "\n".join(result.lines())
    assert set(result.compiles) == {"launcher", "plugin"}

"""The demo's sources."""

import pytest

from policybridge_demo.corpus import CorpusError, Module, check_sources, demo_modules
from tests.measures.observations import training_modules


def test_every_source_is_in_the_installed_wheel() -> None:
    check_sources([*demo_modules(), *training_modules()])


def test_the_bundled_policy_learnt_from_no_module_of_the_demo() -> None:
    assert not {*demo_modules()} & {*training_modules()}


def test_a_source_that_another_release_lacks_is_named() -> None:
    with pytest.raises(CorpusError, match=r"lacks 1 of the sources, libcxx/src/gone\.cpp"):
        check_sources([*demo_modules(), Module("libcxx/src/gone.cpp")])

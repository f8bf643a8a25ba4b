"""The digest of a version covers all that its advice follows from."""

import pickle

import pytest

from policybridge_server.repository.config import PolicyConfig
from policybridge_server.repository.identity import version_digest
from policybridge_server.repository.toml import parse_toml

BACKEND = 'backend = "onnx"\n'


def digest_of(toml: str, files: str = "sha256:0") -> str:
    return version_digest(files, parse_toml(toml.encode(), "policy.toml", PolicyConfig))


@pytest.mark.parametrize(
    "toml",
    [
        'backend = "torch"',
        BACKEND + "[head]",
        BACKEND + '[head]\nscores = "probabilities"',
        BACKEND + '[head]\nmask = "legal"',
        BACKEND + '[rename]\nx = "y"',
        BACKEND + "[fill]\nx = 1",
        BACKEND + "[fill]\nx = 1.0",
        BACKEND + "[fill]\nx = nan",
        BACKEND + "[fill]\nx = inf",
        BACKEND + "[fill]\nx = -inf",
        BACKEND + "[fill]\nx = 99999999999999999999",
        BACKEND + "[settings]\nbatch = true",
        BACKEND + "[scope]\nlevel = ['Oz']",
        BACKEND + 'features = [{name = "x", type = "int64_t", shape = [1]}]',
        BACKEND + 'advice = {name = "x", type = "int64_t", shape = [1]}',
        BACKEND + '[settings.pack.x]\nfeatures = ["a", "b"]',
        BACKEND + '[settings.pack.x]\nfeatures = ["b", "a"]',
    ],
)
def test_every_key_that_may_change_advice_changes_the_digest(toml: str) -> None:
    others = [BACKEND, BACKEND + "[fill]\nx = 2", BACKEND + "[fill]\nx = 2.5", BACKEND + '[head]\ntype = "int8_t"']
    assert len({digest_of(each) for each in [toml, *others]}) == len(others) + 1


def test_infinities_and_nan_are_three_values() -> None:
    assert len({digest_of(f"{BACKEND}[fill]\nx = {each}") for each in ("nan", "inf", "-inf")}) == 3


@pytest.mark.parametrize(
    "toml",
    [
        "# a comment\n" + BACKEND,
        BACKEND + 'description = "for people"',
        BACKEND + "inline = true",
        BACKEND + 'isolation = "process"\nmemory_limit = 100000000\ndecision_timeout = 2.5',
        BACKEND + "[aliases]\nstable = 1",
        BACKEND + "[settings]",
        BACKEND + "[rename]\n[fill]",
    ],
)
def test_what_changes_no_advice_leaves_the_digest_as_it_is(toml: str) -> None:
    assert digest_of(toml) == digest_of(BACKEND)


def test_the_order_of_keys_and_a_default_that_is_written_out_leave_the_digest_as_it_is() -> None:
    assert digest_of(BACKEND + "[fill]\na = 1\nb = 2") == digest_of(BACKEND + "[fill]\nb = 2\na = 1")
    assert digest_of(BACKEND + '[head]\nscores = "logits"') == digest_of(BACKEND + "[head]")


def test_the_files_are_part_of_the_digest() -> None:
    assert digest_of(BACKEND, "sha256:1") != digest_of(BACKEND, "sha256:0")


@pytest.mark.parametrize("head", ["", 'scores = "logits"', 'type = "int64_t"', 'mask = "legal"'])
def test_a_configuration_that_another_process_sent_has_the_digest_of_its_file(head: str) -> None:
    config = parse_toml(f"{BACKEND}[head]\n{head}".encode(), "policy.toml", PolicyConfig)
    assert version_digest("sha256:0", pickle.loads(pickle.dumps(config))) == version_digest("sha256:0", config)


def test_a_head_with_a_default_written_out_has_the_digest_of_one_without() -> None:
    assert digest_of(BACKEND + '[head]\nscores = "logits"') == digest_of(BACKEND + "[head]")

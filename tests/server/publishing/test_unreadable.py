"""Files and folders of a repository that the server may not read."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from policybridge_core.errors import PreconditionError
from tests.conftest import running_server
from tests.server.publishing.policies import Client, client, wait_for, write_adder, write_policy

pytest.importorskip("watchfiles")

_RIGHTS = "-dac_override,-dac_read_search"
_BEFORE = ("setpriv", "--bounding-set", _RIGHTS, "--inh-caps", _RIGHTS) if os.geteuid() == 0 else ()
"""Permissions do not hold for root; behind these words they do."""


@contextmanager
def served(policies: Path) -> Iterator[Client]:
    with (
        TemporaryDirectory(prefix="pb-") as folder,
        running_server(policies, Path(folder), before=_BEFORE) as server,
        client(server) as made,
    ):
        yield made


@contextmanager
def forbidden(path: Path) -> Iterator[None]:
    mode = path.stat().st_mode
    path.chmod(0)
    try:
        yield
    finally:
        path.chmod(mode)


@pytest.mark.parametrize("unreadable", ["policy.toml", "aliases.toml", "1/model.onnx"])
def test_a_file_that_cannot_be_read_costs_its_policy_alone_and_is_named(unreadable: str, policies: Path) -> None:
    other = write_policy(policies, "other", 300)
    (other / "aliases.toml").write_text("stable = 1\n")
    with forbidden(other / unreadable), served(policies) as server:
        assert server.ask()[1] == 100
        with pytest.raises(PreconditionError, match=f"{Path(unreadable).name} cannot be read: Permission denied"):
            server.open("other")


def test_folders_that_cannot_be_read_are_passed_over_at_start(policies: Path) -> None:
    write_policy(policies, "other", 300)
    (policies / "lost+found").mkdir()
    with forbidden(policies / "other"), forbidden(policies / "lost+found"), served(policies) as server:
        assert server.ask()[1] == 100


def test_a_folder_that_becomes_unreadable_does_not_keep_later_ones_from_being_served(policies: Path) -> None:
    with served(policies) as server, forbidden(write_policy(policies, "other", 300)):
        for number in (2, 3):
            write_adder(policies / "adder" / str(number), 100 * number)
            wait_for(lambda added=100 * number: server.ask()[1] == added)  # type: ignore[misc]


def test_a_policy_toml_that_is_nested_without_end_costs_its_policy_alone(policies: Path) -> None:
    other = write_policy(policies, "other", 300)
    (other / "policy.toml").write_text('backend = "onnx"\nfill = {x = ' + "[" * 5000 + "]" * 5000 + "}\n")
    with served(policies) as server:
        assert server.ask()[1] == 100
        with pytest.raises(PreconditionError, match=r"policy\.toml: values are nested too deeply in each other"):
            server.open("other")

"""What a page shows is compared with what its commands print."""

from pathlib import Path

import pytest

from tests.docs.pages import blocks
from tests.docs.shell import Command, commands, matches, opened_shell


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        (["ready grpc:127.0.0.1:…"], ["ready grpc:127.0.0.1:40387"]),
        (["first", "…", "last"], ["first", "a", "b", "last"]),
        (["first", "…", "last"], ["first", "last"]),
        (["a (b) *"], ["a (b) *  "]),
    ],
)
def test_an_ellipsis_stands_for_what_varies(shown: list[str], printed: list[str]) -> None:
    assert matches(shown, printed)


@pytest.mark.parametrize(
    ("shown", "printed"),
    [(["1"], ["2"]), (["1"], ["1", "2"]), (["1", "2"], ["1"]), (["a…c"], ["ab"]), (["a.c"], ["abc"])],
)
def test_any_other_difference_is_found(shown: list[str], printed: list[str]) -> None:
    assert not matches(shown, printed)


def test_a_command_goes_on_behind_a_backslash_and_ends_where_its_output_begins() -> None:
    first, second = commands("$ echo a \\\n    b\na b\n$ true\n")
    assert first == Command("echo a \\\n    b", ["a b"])
    assert second == Command("true", [])


def test_a_command_that_fails_is_an_error_that_tells_what_it_printed(tmp_path: Path) -> None:
    with opened_shell(tmp_path, {}) as shell, pytest.raises(AssertionError, match="ended with 3:\nwhy"):
        shell.run(Command("echo why && (exit 3)"))


def test_a_shell_keeps_its_variables_and_what_it_started(tmp_path: Path) -> None:
    with opened_shell(tmp_path, {"PATH": "/usr/bin:/bin"}) as shell:
        assert shell.run(Command("(echo ready here; exec sleep 60) &")) == ["ready here"]
        assert shell.run(Command("name=$!; kill -0 $name && echo runs")) == ["runs"]


def test_a_comment_before_a_block_belongs_to_that_block_alone(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- not run: needs a reason -->\n```console\n$ false\n```\n\n```toml\n# a/policy.toml\n```\n")
    first, second = blocks(page)
    assert (first.reason, second.reason) == ("needs a reason", "")
    assert (first.path, second.path) == (None, "a/policy.toml")

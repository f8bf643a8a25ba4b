"""The one way to a terminal or a log: nothing that somebody else wrote steers it or forges a line."""

import ast
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from policybridge_core.terminal import as_json, cleaned, complain, indented, say
from policybridge_server.config import ServerConfig
from policybridge_server.log import start_log

ROOT = Path(__file__).parents[2]
HOSTILE = "a\x1b[2Jb\x9b2Jc\u202ed\r\n2026-01-01T00:00:00.000Z ERROR forged"


class Policy(msgspec.Struct, frozen=True):
    name: str
    aliases: dict[str, int] = {}


def steering(text: str) -> list[str]:
    return [each for each in text if not each.isprintable() and each != "\n"]


def test_lines_on_a_terminal_have_no_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    say(HOSTILE)
    complain(f"policybridge: {HOSTILE}")
    out, err = capsys.readouterr()
    assert steering(out + err) == []
    assert err.splitlines()[1].startswith("    2026")


def test_json_escapes_what_steers_a_terminal_and_stays_the_same_value() -> None:
    written = as_json({"description": HOSTILE})
    assert steering(written) == []
    assert json.loads(written) == {"description": HOSTILE}


def test_every_text_in_a_value_is_made_printable() -> None:
    policy = cleaned(Policy(HOSTILE, {"x\x1b": 1}))
    assert policy.name.isprintable()
    assert list(policy.aliases) == ["x\ufffd"]


@pytest.mark.parametrize("kind", ["text", "json"])
def test_a_log_has_one_line_for_each_record_whatever_it_tells(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    root, before = logging.getLogger(), logging.getLogger().handlers[:]
    try:
        start_log(ServerConfig(repository=["x"], grpc=["127.0.0.1:0"], log_format=kind))  # type: ignore[arg-type]
        try:
            raise ValueError(HOSTILE)
        except ValueError:
            logging.getLogger("test").exception("policy %s failed", HOSTILE)
    finally:
        root.handlers[:] = before
    logged = capsys.readouterr().err
    assert steering(logged) == []
    assert not any(line.startswith("2026-01-01") for line in logged.splitlines())


def test_the_lines_of_a_message_after_the_first_are_indented() -> None:
    assert indented("a\nb\n\nc") == "a\n    b\n    \n    c"


OWN = ("core/policybridge_core/terminal.py", "server/policybridge_server/log.py")
CONSTANT = ("clients/python/policybridge_client/completion.py",)
"""Files that write to a terminal: the one way, the log, and a script for shells that is all our own."""


def writes(file: Path) -> Iterator[int]:
    for node in ast.walk(ast.parse(file.read_text())):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        if called == "print" or called.endswith(("stdout.write", "stderr.write")):
            yield node.lineno


def test_client_and_server_write_to_terminals_by_the_one_way_alone() -> None:
    roots = ("core/policybridge_core", "server/policybridge_server", "clients/python/policybridge_client")
    found = [
        f"{name}:{line}: use policybridge_core.terminal"
        for root in roots
        for file in sorted((ROOT / root).rglob("*.py"))
        if (name := file.relative_to(ROOT).as_posix()) not in (*OWN, *CONSTANT) and "bundled" not in name
        for line in writes(file)
    ]
    assert found == []

"""What a server logs: for people, for programs, and never a flood."""

import json
import logging
import re
import signal
from datetime import datetime
from pathlib import Path

import pytest

from policybridge_client import open_runner
from policybridge_core.errors import PolicyBridgeError
from policybridge_server.log import Brake
from tests.repositories import answering, write_python
from tests.server.telemetry.test_metrics import ADVICE, X
from tests.serving import started

TALKING = """
    class Policy:
        def evaluate(self, observation, session):
            print("spoken")
            return 1 // observation["x"].item()
"""


def logged(tmp_path: Path, *arguments: object) -> tuple[list[str], str]:
    """Ask a policy that prints and then fails; give the lines of the server's log, and the session's id."""
    write_python(tmp_path / "policies", "talking", TALKING)
    log = tmp_path / "log"
    listen = ("--repository", tmp_path / "policies", "--allow-python", "--grpc", "127.0.0.1:0")
    with (
        started(*listen, *arguments, log=log) as (_, (address,)),
        open_runner(address, policy="talking", features=[X], advice=ADVICE) as runner,
    ):
        runner["x"] = 1
        runner.evaluate()
        runner["x"] = 0
        with pytest.raises(PolicyBridgeError):
            runner.evaluate()
        session = runner.session_id
    return log.read_text().splitlines(), session


def test_json_lines_have_time_level_message_and_session_also_for_what_a_policy_prints(tmp_path: Path) -> None:
    lines, session = logged(tmp_path, "--log-format", "json", "--log-level", "debug")
    records = [json.loads(line) for line in lines]
    assert all(datetime.fromisoformat(record["time"]).tzinfo for record in records)
    assert {record["level"] for record in records} >= {"debug", "info", "error"}
    assert [record["message"] for record in records if record.get("policy") == "talking@1"].count("spoken") == 2
    assert any(record.get("session") == session for record in records)
    assert any("ZeroDivisionError" in record["message"] for record in records)


def test_lines_for_people_begin_with_time_and_level_and_say_no_more_than_was_asked_for(tmp_path: Path) -> None:
    lines, _ = logged(tmp_path)
    assert "talking@1: spoken" in lines
    dated = [line for line in lines if re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z ", line)]
    assert [line.split()[1] for line in dated] == ["ERROR"]


def test_records_of_one_place_are_held_back_when_they_are_many_and_the_next_one_tells_their_number() -> None:
    now = [0.0]
    brake = Brake(lambda: now[0])
    passed = [record for _ in range(100) if brake.filter(record := one("client %s is odd", "a"))]
    assert len(passed) == 21
    assert passed[-1].getMessage() == "client a is odd (more of these are not logged for a while)"
    assert brake.filter(another := one("something else"))
    assert another.getMessage() == "something else"
    now[0] = 61.0
    assert brake.filter(later := one("client %s is odd", "b"))
    assert later.getMessage() == "client b is odd (79 more of these were not logged)"
    assert brake.filter(one("client %s is odd", "c"))


def one(text: str, *values: object) -> logging.LogRecord:
    return logging.LogRecord("policybridge_server", logging.WARNING, __file__, hash(text), text, values, None)


def test_sighup_takes_a_new_configuration_and_keeps_the_old_one_where_the_new_is_wrong(tmp_path: Path) -> None:
    config, log = tmp_path / "config.toml", tmp_path / "log"
    write_python(tmp_path / "policies", "one", answering("1"))
    fixed = f'grpc = ["127.0.0.1:0"]\nrepository = ["{tmp_path / "policies"}"]\nallow_python = true\n'
    config.write_text(fixed)
    with started("--config", config, log=log) as (process, (address,)):
        config.write_text(f'{fixed}max_sessions = 1\nlog_level = "info"\nspin = 0.0\n')
        process.send_signal(signal.SIGHUP)
        wait_for(log, "--spin wait for the next start")
        with (
            open_runner(address, policy="one", features=[X], advice=ADVICE),
            pytest.raises(PolicyBridgeError, match="no more are taken"),
        ):
            open_runner(address, policy="one", features=[X], advice=ADVICE)
        config.write_text(f'{fixed}max_sessions = "many"\n')
        process.send_signal(signal.SIGHUP)
        wait_for(log, "the configuration cannot be used")
        open_runner(address, policy="one", features=[X], advice=ADVICE).close()


def wait_for(log: Path, text: str) -> None:
    """Wait until the log has the text; pytest's own timeout ends it."""
    while text not in log.read_text():
        continue

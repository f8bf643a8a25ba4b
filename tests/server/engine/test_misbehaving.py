"""Policies that exit, hang, print and fail: each costs those who asked it an error, and nobody else anything."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from policybridge_client.policies import RepositoryClient
from policybridge_core.errors import PolicyFailedError, PreconditionError
from policybridge_serdes import PolicyReference, SessionOptions
from tests.conftest import ServerFactory
from tests.repositories import answering, write_python
from tests.server.engine.misbehaving import (
    EXIT,
    GENERATOR_EXIT,
    HANG,
    INTERRUPT,
    OBEYS,
    PRINT,
    SILENT,
    Speaking,
    X,
    ask,
    connected,
    health,
    open_session,
)

AT_LOAD = ["import sys; sys.exit(1)", "raise KeyboardInterrupt", "raise GeneratorExit"]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "policies"
    write_python(folder, "obeys", OBEYS)
    write_python(folder, "echo", answering("observation['x']"))
    return folder


@pytest.mark.parametrize("toml", ["", "inline = true", 'isolation = "process"'], ids=["worker", "inline", "process"])
def test_whatever_a_policy_raises_is_an_error_of_its_session_alone(
    repository: Path, server_factory: ServerFactory, toml: str
) -> None:
    (repository / "obeys" / "policy.toml").write_text(f'backend = "python"\n{toml}\n')
    server = server_factory(repository)
    with connected(server) as connection:
        other = open_session(connection)
        assert ask(other, 5) == 501
        for value, message in (
            (EXIT, r"SystemExit: 3"),
            (INTERRUPT, r"KeyboardInterrupt"),
            (GENERATOR_EXIT, "GeneratorExit"),
            (SILENT, "Silent"),
        ):
            with pytest.raises(PolicyFailedError, match=rf"the policy failed: {message} \(policy.py, line \d+\)"):
                ask(open_session(connection), value)
        assert ask(other, 5) == 502
    assert health(server, "obeys") == health(server) == "SERVING"


def test_a_server_starts_with_policies_that_exit_and_says_which_cannot_be_asked(
    repository: Path, server_factory: ServerFactory
) -> None:
    for number, line in enumerate(AT_LOAD):
        write_python(repository, f"bad{number}", line)
    write_python(repository, "made", "import sys\nclass Policy:\n    __init__ = lambda self: sys.exit(4)")
    (repository / "other").mkdir()
    (repository / "other" / "policy.toml").write_text('backend = "pyton"\n')
    (repository / "other" / "1").mkdir()
    newer = repository / "echo" / "2"
    newer.mkdir()
    (newer / "policy.py").write_text("raise SystemExit")
    server = server_factory(repository)
    with connected(server) as connection:
        for name, reason in (
            ("bad0", r"SystemExit: 1 \(policy.py, line 1\)"),
            ("bad1", "KeyboardInterrupt"),
            ("bad2", "GeneratorExit"),
            ("made", "SystemExit: 4"),
            ("other", "unknown backend 'pyton'"),
        ):
            with pytest.raises(PreconditionError, match=reason):
                open_session(connection, name)
            assert health(server, name) == "NOT_SERVING"
        # The version before goes on.
        assert ask(open_session(connection, "echo"), 8) == 8
    assert health(server, "echo") == health(server) == "SERVING"


def test_a_policy_that_hangs_fails_those_who_wait_and_goes_on_for_the_others(
    repository: Path, server_factory: ServerFactory
) -> None:
    (repository / "obeys" / "policy.toml").write_text('backend = "python"\ndecision_timeout = 1\n')
    server = server_factory(repository)
    with connected(server) as connection:
        hanging, other = open_session(connection), open_session(connection)
        assert [ask(other, 1), ask(other, 1)] == [101, 102]
        with pytest.raises(PolicyFailedError, match="obeys@1 gave no advice within 1 s"):
            ask(hanging, HANG)
        assert health(server, "obeys") == "NOT_SERVING"
        # It is not started anew for a session that it knows.
        assert ask(other, 1) == 103
        assert health(server, "obeys") == "SERVING"


def test_all_who_wait_behind_a_decision_that_hangs_get_the_error(
    repository: Path, server_factory: ServerFactory
) -> None:
    server = server_factory(repository, "--decision-timeout", "2")
    with ExitStack() as stack, ThreadPoolExecutor(4) as pool:
        sessions = [open_session(stack.enter_context(connected(server))) for _ in range(4)]
        waiting = [pool.submit(ask, session, HANG) for session in sessions]
        errors = [future.exception(60) for future in waiting]
    assert [str(error) for error in errors] == ["obeys@1 gave no advice within 2 s"] * 4


def test_a_policy_that_exits_in_its_hooks_costs_its_session_alone(
    repository: Path, server_factory: ServerFactory
) -> None:
    source = """
        import sys

        class Policy:
            def start(self, session):
                if session.options:
                    sys.exit("start")

            def evaluate(self, observation, session):
                return 1

            def end(self, session):
                sys.exit("end")
        """
    write_python(repository, "hooks", source)
    with connected(server_factory(repository)) as connection:
        for _ in range(2):
            session = open_session(connection, "hooks")
            assert ask(session, 1) == 1
            session.close()
        refused = connection.open(PolicyReference("hooks"), X, SessionOptions(options={"a": "b"}))
        with pytest.raises(PolicyFailedError, match="SystemExit: start"):
            ask(refused, 1)
        assert ask(open_session(connection, "hooks"), 1) == 1


def test_a_version_that_exits_is_not_published_and_the_one_before_goes_on(
    repository: Path, tmp_path: Path, server_factory: ServerFactory
) -> None:
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "policy.py").write_text("raise SystemExit(9)")
    server = server_factory(repository, "--allow-publish")
    with connected(server) as connection, RepositoryClient(server.grpc) as client:
        with pytest.raises(PreconditionError, match=r"SystemExit: 9 \(policy.py, line 1\)"):
            client.publish("echo", tmp_path / "new")
        assert ask(open_session(connection, "echo"), 8) == 8
    assert health(server, "echo") == "SERVING"


def test_a_policy_that_hangs_again_and_again_ends_in_errors_and_not_in_ever_more_threads(
    repository: Path, server_factory: ServerFactory
) -> None:
    server = server_factory(repository, "--decision-timeout", "0.5")
    with connected(server) as connection:
        for _ in range(5):
            with pytest.raises(PolicyFailedError, match=r"gave no advice within 0.5 s"):
                ask(open_session(connection), HANG)
        with pytest.raises(PolicyFailedError, match="5 threads hang in obeys@1"):
            ask(open_session(connection), 1)
        assert ask(open_session(connection, "echo"), 8) == 8
    assert health(server, "obeys") == "NOT_SERVING"


def test_a_version_that_hangs_while_it_is_loaded_is_refused(repository: Path, server_factory: ServerFactory) -> None:
    write_python(repository, "sleeps", "import time; time.sleep(600)")
    server = server_factory(repository, "--load-timeout", "10")
    with connected(server) as connection:
        with pytest.raises(PreconditionError, match="sleeps@1 was not loaded within 10 s"):
            open_session(connection, "sleeps")
        assert ask(open_session(connection, "echo"), 8) == 8


@pytest.mark.parametrize("toml", ["", "inline = true", 'isolation = "process"'], ids=["worker", "inline", "process"])
def test_what_a_policy_prints_is_said_by_its_name_on_standard_error(
    repository: Path, tmp_path: Path, toml: str
) -> None:
    (repository / "obeys" / "policy.toml").write_text(f'backend = "python"\n{toml}\n')
    with Speaking(repository, tmp_path) as server, connected(server) as connection:
        assert ask(open_session(connection), PRINT) == PRINT * 100 + 1
    assert server.output == ""
    assert "obeys" in next(line for line in server.errors.splitlines() if line.endswith(": spoken"))
    assert "shouted\n" in server.errors


def test_a_failure_is_logged_once_with_its_line_and_then_counted(repository: Path, tmp_path: Path) -> None:
    with Speaking(repository, tmp_path) as server, connected(server) as connection:
        for _ in range(12):
            with pytest.raises(PolicyFailedError):
                ask(open_session(connection), EXIT)
    assert server.errors.count("Traceback") == 1
    assert 'policy.py", line' in server.errors
    assert "policy obeys@1 has failed 10 times" in server.errors


DOES = """
class Policy:
    def evaluate(self, observation, session):
        exec(session.options["do"])
        return 1
"""
ODD_ERRORS = [
    # Text that is no Unicode, as os.fsdecode() gives it for the names of files.
    r"raise ValueError('\udcff')",
    "raise ValueError('x' * 3_000_000)",
    "error = ValueError('x'); error.__notes__ = [1]; raise error",
    "raise type('E', (Exception,), {'__notes__': property(lambda self: sys.exit(1))})",
    "raise type('E', (PolicyFailedError,), {'__str__': lambda self: sys.exit(1)})",
    "raise type('E', (Exception,), {'__str__': lambda self: type('S', (str,), {'__len__': 0, '__format__': 0})('x')})",
    "raise PolicyFailedError('x' * 3_000_000)",
    "raise AbandonedError",
]


@pytest.mark.parametrize("toml", ["", "inline = true", 'isolation = "process"'], ids=["worker", "inline", "process"])
def test_an_error_that_cannot_be_told_as_it_is_costs_its_session_alone_and_is_told_shortened(
    repository: Path, server_factory: ServerFactory, toml: str
) -> None:
    imports = (
        "import sys\nfrom policybridge_core.errors import PolicyFailedError\n"
        "from policybridge_server.engine.worker import AbandonedError\n"
    )
    write_python(repository, "does", imports + DOES, f"{toml}\n")
    with connected(server_factory(repository)) as connection:
        for line in ODD_ERRORS:
            session = connection.open(PolicyReference("does"), X, SessionOptions(options={"do": line}))
            with pytest.raises(PolicyFailedError) as told:
                ask(session, 1)
            assert len(str(told.value)) < 3000, line
        beside = open_session(connection, "echo")
        assert ask(beside, 3) == 3
        # The process that gave all these errors is still the first one.
        well = connection.open(PolicyReference("does"), X, SessionOptions(options={"do": "pass"}))
        assert ask(well, 1) == 1


def test_a_policy_that_changes_the_folder_of_the_process_leaves_the_repository_where_it_is(
    repository: Path, server_factory: ServerFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_python(repository, "does", "import os\n" + DOES)
    write_python(repository, "later", answering("observation['x']"))
    monkeypatch.chdir(repository.parent)
    server = server_factory(Path(repository.name), "--allow-publish")
    with connected(server) as connection:
        moves = connection.open(PolicyReference("does"), X, SessionOptions(options={"do": "os.chdir('/')"}))
        assert ask(moves, 1) == 1
        with RepositoryClient(server.grpc) as client:
            client.publish("echo", repository / "later" / "1")
        assert ask(open_session(connection, "echo@2"), 3) == 3

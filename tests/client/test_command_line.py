"""The messages of the commands about unknown words, and the imports of a command."""

import re
import subprocess
import sys
from pathlib import Path
from typing import cast

import msgspec
import pytest

import policybridge_client
from policybridge_client import api
from policybridge_client.cli import COMMANDS, main
from policybridge_train.learning.training import ALGORITHMS
from policybridge_train.train_command import Algorithm
from tests.conftest import command


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["run", "--polcy", "x", "--server", "s", "--", "clang", "--polcy"],
            "policybridge run: error: there is no option --polcy: did you mean '--policy'?",
        ),
        (["run", "--policy=x", "--servr=s", "--", "clang"], "there is no option --servr: did you mean '--server'?"),
        (["run", "--policy", "x", "--", "clang"], "policybridge run: --policy needs --server ADDRESS"),
        (["serve", "--repository", "x", "--ledgr", "y"], "there is no option --ledgr: did you mean '--ledger'?"),
        (["sessions", "list", "--ledgr", "x"], "there is no option --ledgr: did you mean '--ledger'?"),
        (["replay", "--legder", "x", "1"], "there is no option --legder: did you mean '--ledger'?"),
        (["policies", "list", "--servr", "x"], "there is no option --servr: did you mean '--server'?"),
        (["bench", "--secnds", "1"], "there is no option --secnds: did you mean '--seconds'?"),
        (["polices", "list"], "unknown command 'polices'; did you mean 'policies'? there are autotune, "),
        (["run", "--server", "s", "--", "clang", "--polcy"], "--server needs --policy NAME"),
    ],
)
def test_a_misspelt_word_is_told_with_the_one_that_was_meant(words: list[str], said: str) -> None:
    ended = subprocess.run(command(*words), capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr


_COMPLETE = """
source "$1"
COMP_WORDS=(policybridge serve --log-) COMP_CWORD=2
"$(complete -p policybridge | sed 's/.*-F \\([^ ]*\\).*/\\1/')" policybridge --log- serve
echo "${COMPREPLY[@]}"
"""


def test_each_option_of_a_command_is_meant_by_its_name_with_a_slip(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["serve", "--help"])
    options = set(re.findall(r"^  (?:-\w, )?(--[a-z-]+)", capsys.readouterr().out, re.MULTILINE)) - {"--help"}
    assert len(options) > 64
    for option in options:
        with pytest.raises(SystemExit):
            main(["serve", f"{option[:4]}{option[3:]}"])
        assert f"did you mean {option!r}?" in capsys.readouterr().err


def test_a_shell_completes_the_options_of_a_command(tmp_path: Path) -> None:
    script = subprocess.run(command("completion", "bash"), capture_output=True, text=True, timeout=60, check=True)
    (tmp_path / "completion.sh").write_text(script.stdout)
    words = ["bash", "-c", _COMPLETE, "bash", str(tmp_path / "completion.sh")]
    completed = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    assert completed.stdout.split() == ["--log-level", "--log-format"]


def test_the_version_is_told_by_the_command_and_by_the_package() -> None:
    told = subprocess.run(command("--version"), capture_output=True, text=True, timeout=60, check=True)
    assert told.stdout == f"policybridge {policybridge_client.__version__}\n"


@pytest.mark.parametrize("name", COMMANDS.names())
def test_the_help_of_each_command_and_subcommand_ends_with_the_exit_statuses(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[list[str]] = [[]]
    for words in asked:
        with pytest.raises(SystemExit):
            main([*name.split(), *words, "--help"])
        told = capsys.readouterr().out
        *_, last = told.strip().split("\n\n")
        assert last.startswith("Exit status: 0") or name == "run", told
        assert "Exit status:" in last
        if not words and (
            found := re.search(r"^positional arguments:\n  COMMAND\n((?:    .*\n)*)", told, re.MULTILINE)
        ):
            asked += [[each] for each in re.findall(r"^    (\S+)", found[1], re.MULTILINE)]


def test_the_help_of_train_names_the_settings_of_each_algorithm(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    told = capsys.readouterr().out
    for name in ALGORITHMS.names():
        for field in msgspec.structs.fields(cast("Algorithm", ALGORITHMS.load(name)).Settings):
            assert f"{field.name}={field.default}" in told


def test_a_command_that_asks_no_server_does_not_wait_for_numpy() -> None:
    script = "import sys; from policybridge_client.cli import main; main(['--version']); print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[1:] == ["False"]


def test_the_package_has_its_public_names_and_no_others() -> None:
    assert set(api.__all__) <= set(dir(policybridge_client))
    assert all(getattr(policybridge_client, name) is not None for name in api.__all__)
    with pytest.raises(AttributeError, match="'policybridge_client' has no attribute 'conect'"):
        _ = policybridge_client.conect


_INTERRUPTED_WHILE_IMPORTING = """
import os, signal, sys
class Interrupting:
    def find_spec(self, name, path, target=None):
        if name == "policybridge_client.doctor":
            os.kill(os.getpid(), signal.SIGINT)
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Interrupting())
from policybridge_client.cli import main
sys.exit(main(["doctor"]))
"""


def test_an_interrupt_while_a_command_is_imported_ends_it_without_a_traceback() -> None:
    words = [sys.executable, "-c", _INTERRUPTED_WHILE_IMPORTING]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "policybridge: interrupted\n")

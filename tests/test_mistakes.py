"""Plausible mistakes: each message names what was wrong, and what to do."""

import re
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from policybridge_client.cli import main
from tests.certificates import Authority, write_tokens
from tests.conftest import command
from tests.native.llvm.plugins import need
from tests.serving import serving

LONG = "x" * 120 + ".sock"
CLANG = ("--", "clang-22", "-Oz", "-c", "m.c")
SOURCE = "int g(int);\nstatic int f(int v) { return g(v) + 1; }\nint main(void) { return f(1) + f(2); }\n"
BY_SITE = "policybridge-decisions 1\nmodule llvm=22 level=Oz by=site digest=- path=m.c\n0000000000000000 inline f g\n"
ASK = ("run", "--policy", "inliner", "--server")

# The words of the command; the exit status; what the message must name: the fault, and the cure.
MISTAKES: Sequence[tuple[str, int, str, str]] = [
    ("trian inline", 2, "unknown command 'trian'", "did you mean 'train'"),
    ("run", 2, "there is no compiler", "behind --"),
    ("run --polcy x -- clang-22 -c m.c", 2, "no option --polcy", "did you mean '--policy'"),
    ("run --policy inliner -- clang-22 -c m.c", 2, "--policy needs --server", "POLICYBRIDGE_SERVER"),
    ("run --server socket:s -- clang-22 -c m.c", 2, "--server", "needs --policy NAME"),
    ("run -- nosuch-clang -c m.c", 127, "no program 'nosuch-clang'", "behind --"),
    ("run --policy p --server gone.sock -- clang-22 -c m.c", 2, "gone.sock has no port", "socket:gone.sock"),
    ("run --policy p --server http://localhost:80 -- clang-22 -c m.c", 2, "http://localhost:80", "grpc:HOST:PORT"),
    ("run --policy p --server socket:gone.sock -- clang-22 -c m.c", 0, "gone.sock: No such file", "policybridge serve"),
    (f"run --policy p --server socket:{LONG} -- clang-22 -c m.c", 0, "path too long", "at most 107 bytes"),
    ("run --policy p --server grpc:127.0.0.1:1 -- clang-22 -c m.c", 0, "127.0.0.1:1", "policybridge serve"),
    ("run --policy p --server grpcs:h:1 --tls-ca no.pem -- clang-22 -c m.c", 2, "authorities' certificates", "no.pem"),
    ("run --policy p --server grpcs:h:1 --token-file no -- clang-22 -c m.c", 2, "the token cannot be read", "from no"),
    ("run --decisions no.db -- clang-22 -Oz -c m.c", 0, "no store of decisions at no.db", "policybridge autotune"),
    ("run --decisions junk -- clang-22 -Oz -c m.c", 0, "junk, line 1", "begins with 'policybridge-decisions 1'"),
    (
        "run --decisions sites.db -- clang-22 -Oz -c m.c",
        0,
        "by site, which policybridge-run and a plugin apply",
        "policybridge doctor",
    ),
    ("run --decisions no.db --server socket:s -- clang-22 -c m.c", 2, "no server is asked", "give either"),
    ("policies list --server gone.sock", 1, "errors resolving gone.sock", "policybridge serve --grpc"),
    ("policies list --server 127.0.0.1:1", 1, "127.0.0.1:1", "policybridge serve"),
    ("policies publish p nowhere --server 127.0.0.1:1", 1, "nowhere is not a folder", "a folder of files"),
    ("health --server 127.0.0.1:1", 1, "127.0.0.1:1", "policybridge serve"),
    ("sessions list --ledger nowhere", 2, "no ledger", "nowhere"),
    ("serve", 2, "no policies", "--demo"),
    ("serve --repository nowhere --socket s", 2, "nowhere is not a folder", "repository"),
    ("serve --repository empty", 2, "nowhere to listen", "--socket PATH"),
    ("serve --demo --grpc 127.0.0.1", 2, "cannot listen on '127.0.0.1'", "HOST:PORT"),
    ("serve --demo --grpc 127.0.0.1:0 --tls-certificate m.c", 2, "TLS needs both", "--tls-key"),
    ("serve --demo --config no.toml", 2, "no.toml", "No such file"),
    ("serve --demo --config typo.toml", 2, "unknown field `soket`", "did you mean 'socket'"),
    ("serve --demo --config broken.toml", 2, "broken.toml: Invalid value", "line 1"),
    ("corpus show empty", 2, "empty holds no corpus", "policybridge corpus record"),
    ("corpus record --output made -- true", 2, "the build compiled nothing", "clean it and build again"),
    ("corpus record --output made -- nosuch-build", 2, "no program 'nosuch-build'", "behind --"),
    ("corpus add --output made empty", 2, "empty holds neither objects (*.o)", "ThinLTO's temporary files"),
    ("corpus add --output made none.json", 1, "none.json", "nothing became a module"),
    ("corpus add --output made broken.toml.json", 2, "broken.toml.json is no JSON", "line 1"),
    ("score --corpus empty --candidate default", 2, "holds no corpus", "policybridge corpus record"),
    ("train inlin --algo es --corpus empty --output o", 2, "unknown task of training 'inlin'", "did you mean 'inline'"),
    ("train inline --algo ess --corpus empty --output o", 2, "'ess'", "exhaustive"),
    ("train inline --algo es --compiler zig --corpus empty --output o", 2, "zig loads no plugins", "--compiler clang"),
    ("train inline --algo es --sed 3 --corpus empty --output o", 2, "no option --sed", "did you mean '--seed'"),
    ("autotune", 2, "give one of two", "--corpus DIR"),
    ("autotune --corpus empty", 2, "empty holds no corpus", "policybridge corpus record"),
    ("autotune --store junk --corpus empty", 2, "junk, line 1", "begins with 'policybridge-decisions 1'"),
    ("autotune -- false", 2, "ended with status 1, so nothing was tuned", "mend it first"),
    ("autotune -- true", 2, "compiled nothing", "clean it and build again"),
    ("autotune -- env -i true", 2, "an environment of its own, as SCons does", "ENV=os.environ"),
    ("autotune -- clang-22 -c m.c", 2, "does not optimise (-O0), so there is nothing to decide", "build at -Oz or -O2"),
    ("autotune -- nosuch-build", 2, "no program 'nosuch-build'", "behind --"),
    ("autotune --compiler clang-99 --corpus empty", 2, "no compiler 'clang-99'", "name a clang"),
    ("autotune --decide inlin --corpus empty", 2, "'inlin' is no kind of decisions", "inline or passes"),
    ("autotune --lto full --linked --corpus empty", 2, "--lto tunes programs already", "leave out --linked"),
    ("autotune --budget 0 --corpus empty", 2, "--budget", "1 or more"),
    ("embed inliner --for d -o x", 2, "--for", "llvm-release"),
    ("embed nosuch --for c -o x", 1, "no policy 'nosuch'", "there are"),
    ("embed inliner@99 --for c -o x", 1, "no version 99", "there are 1"),
]


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need("clang-22")
    monkeypatch.chdir(tmp_path)
    for name in ("POLICYBRIDGE_SERVER", "POLICYBRIDGE_PLUGINS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("POLICYBRIDGE_LAUNCHER", "")
    Path("m.c").write_text(SOURCE)
    Path("junk").write_text("junk\n")
    Path("sites.db").write_text(BY_SITE)
    Path("empty").mkdir()
    Path("typo.toml").write_text('soket = ["s"]\n')
    Path("broken.toml").write_text("socket = \n")
    Path("broken.toml.json").write_text("{")
    Path("none.json").write_text("[]")


@pytest.mark.parametrize(("words", "status", "fault", "cure"), MISTAKES, ids=[row[0][:60] for row in MISTAKES])
def test_a_mistake_is_named_with_its_cure(
    words: str, status: int, fault: str, cure: str, capfd: pytest.CaptureFixture[str]
) -> None:
    if words.startswith("serve"):
        # In a process of its own: other tests import Triton's client, whose messages have the names of ours.
        done = said_by(*words.split())
        ended, told = done.returncode, done.stderr
    else:
        try:
            ended = main(words.split())
        except SystemExit as stopped:
            ended = int(stopped.code or 0)
        told = capfd.readouterr().err
    said = " ".join(told.split())
    assert (ended, fault in said, cure in said) == (status, True, True), said


def test_each_message_about_a_missing_part_names_the_doctor(capfd: pytest.CaptureFixture[str]) -> None:
    missing = ("no program 'nosuch-clang'", "gone.sock: No such file", "no store of decisions", "gone.sock", "clang-99")
    for words, _, fault, _ in MISTAKES:
        if any(part in fault for part in missing) and "no port" not in fault:
            main(words.split())
            assert "; policybridge doctor tells what this machine has" in capfd.readouterr().err, words


def said_by(*words: str, before: Sequence[str] = ()) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([*before, *command(*words)], capture_output=True, text=True, check=False)


def test_a_full_disk_ends_a_search_by_a_line(tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text("all:\n\tclang-22 -Oz -c m.c\n")
    limited = ("sh", "-c", 'ulimit -f 4; exec "$@"', "sh")
    done = said_by("autotune", "--budget", "2", "--", "make", before=limited)
    assert done.returncode == 2
    assert re.search("File too large|is there space on the disk", done.stderr), done.stderr
    assert "Traceback" not in done.stderr


def test_an_interrupt_before_there_is_a_store_says_so() -> None:
    waiting = command("autotune", "--", "sh", "-c", "echo begun; exec sleep 60")
    with subprocess.Popen(waiting, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGINT)
        said = process.communicate()[1]
    assert process.returncode == 130
    assert "there is no store yet; the same command begins again" in said


def test_a_corpus_of_a_later_clang_is_told_with_the_clang_to_take() -> None:
    need("clang-19")
    recorded = said_by("corpus", "record", "--compiler", "clang-22", "--output", "corpus", "--", *CLANG[1:])
    assert recorded.returncode == 0, recorded.stderr
    for asked in (("score", "--candidate", "default"), ("autotune", "--decide", "inline")):
        done = said_by(*asked, "--corpus", "corpus", "--compiler", "clang-19")
        assert done.returncode == 1
        said = " ".join((done.stdout + done.stderr).replace("│", " ").split())
        assert "compile with the clang that made the corpus" in said, said
        assert "make the corpus again with --compiler clang-19" in said, said


def test_a_plugin_of_an_llvm_that_is_not_there_is_refused_with_the_package(tmp_path: Path) -> None:
    sources = Path(__file__).parents[1] / "clients"
    configure = ("cmake", "-S", str(sources), "-B", str(tmp_path / "build"), "-DPOLICYBRIDGE_LLVM=99")
    done = subprocess.run(configure, capture_output=True, text=True, check=False)
    said = " ".join(done.stderr.split())
    assert done.returncode
    assert "there is no llvm-config-99" in said
    assert "llvm-99-dev" in said


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """Serve over TLS, with tokens; give the address and the authority's certificate."""
    authority = Authority(tmp_path / "ours")
    server = authority.issue("server")
    tokens = write_tokens(tmp_path / "tokens.toml", {"asker": ["evaluate"]})
    tls = ("--tls-certificate", server.certificate, "--tls-key", server.key, "--tokens", tokens)
    with serving("--demo", "--grpc", "127.0.0.1:0", *tls) as (_, address):
        yield address, authority.ca


def test_a_server_whose_authority_or_token_is_missing_says_which_option_gives_it(
    secured: tuple[str, Path], capfd: pytest.CaptureFixture[str]
) -> None:
    address, ca = secured
    assert main([*ASK, address, *CLANG]) == 0
    assert "--tls-ca FILE" in capfd.readouterr().err
    assert main([*ASK, address, "--tls-ca", str(ca), *CLANG]) == 0
    assert "this server wants a token; send" in capfd.readouterr().err

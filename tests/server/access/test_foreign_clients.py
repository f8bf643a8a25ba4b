"""Who is let in and how others are refused, as clients see it that are not ours: curl, and Node's grpc-js."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.certificates import Authority, Identity, token, write_tokens
from tests.locks import one_at_a_time
from tests.server.access.doors import GRPC, Doors, opened

REQUIRED = "POLICYBRIDGE_REQUIRE_NETWORK"
"""Environment variable: set where npm's packages have to be reachable, so that nothing is skipped."""

PACKAGE = "@grpc/grpc-js@1.14.7"
CACHE = Path(__file__).parents[3] / ".cache"

EVALUATE = "/policybridge.v1.PolicyService/Evaluate"
LIST = "/policybridge.v1.RepositoryService/ListPolicies"


class Case(NamedTuple):
    """What a client shows, a certificate and a token by their names; what it calls, and how that ends."""

    identity: str | None
    client: str | None
    method: str
    status: str


CASES = [
    Case("client", "asker", EVALUATE, "INVALID_ARGUMENT"),
    Case("client", "asker", LIST, "PERMISSION_DENIED"),
    Case("client", None, EVALUATE, "UNAUTHENTICATED"),
    Case("client", "nobody", EVALUATE, "UNAUTHENTICATED"),
    Case(None, "asker", EVALUATE, "UNAVAILABLE"),
    Case("stranger", "asker", EVALUATE, "UNAVAILABLE"),
    Case("expired", "asker", EVALUATE, "UNAVAILABLE"),
]
STATUS = {"3": "INVALID_ARGUMENT", "7": "PERMISSION_DENIED", "16": "UNAUTHENTICATED"}


class Served(NamedTuple):
    """A server that wants a certificate and a token, and the certificates of clients."""

    doors: Doors
    ca: Path
    shown: dict[str | None, Identity]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("served")
    ours, others = Authority(folder / "ours"), Authority(folder / "others")
    server = ours.issue("server")
    shown: dict[str | None, Identity] = {
        "client": ours.issue("client"),
        "stranger": others.issue("stranger"),
        "expired": ours.issue("expired", expired=True),
    }
    tls = ("--tls-certificate", server.certificate, "--tls-key", server.key, "--tls-client-ca", ours.ca)
    tokens = ("--tokens", write_tokens(folder / "tokens.toml", {"asker": ["evaluate"]}))
    with opened(folder, *tls, *tokens) as doors:
        yield Served(doors, ours.ca, shown)


def program(name: str) -> str:
    """Find a program; where it is missing, skip the test, or fail it where nothing may be skipped."""
    found = shutil.which(name)
    if found is None:
        if os.environ.get(REQUIRED):
            pytest.fail(f"{name} is missing, and {REQUIRED} is set")
        pytest.skip(f"{name} is missing")
    return found


def curl(served: Served, identity: str | None, client: str | None, *arguments: str) -> subprocess.CompletedProcess[str]:
    words = [program("curl"), "--silent", "--show-error", "--max-time", "60", "--cacert", str(served.ca)]
    if identity is not None:
        shown = served.shown[identity]
        words += ["--cert", str(shown.certificate), "--key", str(shown.key)]
    if client is not None:
        words += ["--header", f"Authorization: Bearer {token(client)}"]
    return subprocess.run([*words, *arguments], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("identity", "client", "path", "status"),
    [
        ("client", "asker", "/v2/models/one/infer", "400"),
        ("client", "asker", "/v2/repository/index", "403"),
        ("client", None, "/v2/models/one/infer", "401"),
        ("client", "nobody", "/v2/models/one/infer", "401"),
        (None, "asker", "/v2/models/one/infer", "000"),
        ("stranger", "asker", "/v2/models/one/infer", "000"),
        ("expired", "asker", "/v2/models/one/infer", "000"),
    ],
)
def test_curl_meets_the_right_status_over_http(
    served: Served, identity: str | None, client: str | None, path: str, status: str
) -> None:
    url = f"https://{served.doors.addresses['http']}{path}"
    done = curl(served, identity, client, "--json", "{}", "--output", os.devnull, "--write-out", "%{http_code}", url)
    assert (done.stdout, done.returncode != 0) == (status, status == "000"), done.stderr


@pytest.mark.parametrize("door", GRPC)
@pytest.mark.parametrize("case", CASES)
def test_curl_meets_the_right_status_over_grpc(served: Served, tmp_path: Path, door: str, case: Case) -> None:
    (body := tmp_path / "empty").write_bytes(bytes(5))
    # Where the call is refused before its request, curl 7 reports the end of the stream as an error if it still sends.
    request = ["--data-binary", f"@{body}"] if case.status == "INVALID_ARGUMENT" else ["--request", "POST"]
    sent = ["--http2", *request, "--header", "Content-Type: application/grpc", "--header", "TE: trailers"]
    url = f"https://{served.doors.addresses[door]}{case.method}"
    done = curl(served, case.identity, case.client, *sent, "--dump-header", "-", "--output", os.devnull, url)
    if case.status == "UNAVAILABLE":
        assert (done.returncode != 0, "grpc-status" in done.stdout) == (True, False)
    else:
        assert "grpc-status" in done.stdout, done.stderr
        (told,) = (line.partition(":")[2].strip() for line in done.stdout.splitlines() if line[:12] == "grpc-status:")
        assert STATUS[told] == case.status


@pytest.fixture(scope="module")
def grpc_js() -> Path:
    """Give a folder with Node's client, from npm once."""
    folder = CACHE / PACKAGE.replace("/", "-")
    program("node")
    npm = program("npm")
    with one_at_a_time(folder):
        if not folder.exists():
            fresh = folder.with_name(f"{folder.name}.new")
            fresh.mkdir(exist_ok=True)
            words = [npm, "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(fresh), PACKAGE]
            done = subprocess.run(words, capture_output=True, text=True, check=False)
            if done.returncode and not os.environ.get(REQUIRED):
                pytest.skip(f"{PACKAGE} cannot be had: {done.stderr[-500:]}")
            assert done.returncode == 0, done.stderr
            fresh.rename(folder)
    return folder


@pytest.mark.parametrize("door", GRPC)
@pytest.mark.parametrize("case", CASES)
def test_nodes_client_meets_the_right_status(served: Served, grpc_js: Path, door: str, case: Case) -> None:
    shown = served.shown.get(case.identity)
    files = [str(served.ca), str(shown.key), str(shown.certificate)] if shown else [str(served.ca), "", ""]
    script = [str(Path(__file__).with_name("grpc_js.js")), served.doors.addresses[door], case.method, *files]
    done = subprocess.run(
        ["node", *script, token(case.client) if case.client else ""],
        env={**os.environ, "NODE_PATH": str(grpc_js / "node_modules")},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.stdout.strip() == case.status, done.stderr

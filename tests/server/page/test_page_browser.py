"""The web page in a real browser."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from policybridge_bench.network import SIGNATURE, write_network
from policybridge_client.connection import connect
from policybridge_client.policies import RepositoryClient
from policybridge_serdes import PolicyReference, SessionOptions
from policybridge_server.page.runs import ShownIteration, ShownProject, ShownRun, write_run
from tests.conftest import RunningServer, running_server
from tests.measures.web_page import VIEWS, browser, fill_ledger, write_policies

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

SESSIONS = 130
HOSTILE = "<img src=x onerror=\"document.title='hostile'\">.c"
ONE_SESSION = f"{5:032x}"
READ = "r" * 32


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    write_policies(folder / "policies")
    fill_ledger(folder / "runs.db", SESSIONS)
    iterations = [
        ShownIteration(number, number + 1, 90 * number, 60.0, {"text": -0.01 * number}) for number in range(4)
    ]
    write_run(ShownRun(HOSTILE, {"seed": "1"}, iterations, 4, [ShownProject("zlib", "text", 900.0, 800.0)]), folder)
    return folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[RunningServer]:
    serve = ("--http", "127.0.0.1:0", "--ledger", folder / "runs.db", "--allow-publish", "--runs", folder)
    with running_server(folder / "policies", folder, *serve) as running:
        yield running


@pytest.fixture(scope="module")
def started() -> Iterator["Browser"]:
    """Start a browser; skip the tests where there is none, fail where one must be."""
    missing = None
    try:
        from playwright.sync_api import Browser  # noqa: F401, PLC0415 - it may not be installed
    except ImportError:
        missing = "the Python package 'playwright' is not installed"
    if missing is None and shutil.which("chromium") is None:
        missing = "there is no chromium"
    if missing is not None:
        if os.environ.get("POLICYBRIDGE_REQUIRE_BROWSER"):
            pytest.fail(f"{missing}, and POLICYBRIDGE_REQUIRE_BROWSER is set", pytrace=False)
        pytest.skip(missing)
    with browser() as chromium:
        yield chromium


@pytest.fixture
def page(started: "Browser") -> Iterator["Page"]:
    """Give a tab; an error in its script fails the test."""
    tab = started.new_page()
    tab.set_default_timeout(60_000)
    errors: list[str] = []
    tab.on("pageerror", lambda error: errors.append(str(error)))
    tab.on("console", lambda message: errors.append(message.text) if "Content Security" in message.text else None)
    yield tab
    tab.close()
    assert errors == []


def address(server: RunningServer) -> str:
    return server.others[1].replace("http:", "http://", 1)


def show(page: "Page", server: RunningServer, view: str) -> None:
    page.goto("about:blank")
    page.goto(f"{address(server)}/{view}")
    page.wait_for_selector("body[data-ready]", state="attached")


@pytest.mark.parametrize("width", [1280, 360])
def test_every_view_is_drawn_and_fits_a_desk_and_a_telephone(page: "Page", server: RunningServer, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    for view in (*VIEWS, "#/policies/inliner", f"#/sessions/{ONE_SESSION}"):
        show(page, server, view)
        page.wait_for_selector(".card")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), view
        assert page.locator(".card.error").count() == 0, view


def test_a_session_is_filtered_opened_and_one_decision_s_observation_is_shown(
    page: "Page", server: RunningServer
) -> None:
    from playwright.sync_api import expect  # noqa: PLC0415 - it may not be installed

    show(page, server, "#/sessions")
    assert page.locator("tbody tr").count() == 100
    page.get_by_role("button", name="Older").click()
    expect(page.locator("tbody tr")).to_have_count(SESSIONS - 100, timeout=60_000)
    page.get_by_label("Status of the outcome").fill("crash")
    page.get_by_role("button", name="Filter").click()
    expect(page.locator("tbody tr")).to_have_count(1, timeout=60_000)
    page.locator("tbody tr").click()
    page.get_by_role("heading", name="Decisions").wait_for()
    page.locator("tr.opens").nth(2).click()
    assert page.locator(".features div").count() == len(SIGNATURE.features.specs)


def test_a_training_run_is_a_curve_and_its_sums_by_project_open(page: "Page", server: RunningServer) -> None:
    show(page, server, "#/runs")
    page.get_by_role("img", name="Changes by compiles").wait_for()
    assert page.locator("svg circle").count() == 4
    page.get_by_text("1 sum by project").click()
    page.get_by_text("−11.11 %").wait_for()


def test_hostile_names_are_text_and_what_is_published_is_shown_without_a_reload(
    page: "Page", server: RunningServer, folder: Path
) -> None:
    options = SessionOptions(HOSTILE, labels={"</td>": HOSTILE})
    with connect(server.socket, timeout=60).open(PolicyReference("inliner"), SIGNATURE, options):
        show(page, server, "#/")
        page.get_by_text(HOSTILE, exact=True).first.wait_for()
        assert page.locator("img").count() == 0
        assert page.title() == "PolicyBridge"
    show(page, server, "#/policies/inliner")
    write_network(folder / "other", "inliner", version=1)
    with RepositoryClient(server.grpc, timeout=120) as client:
        number = client.publish("inliner", folder / "other" / "inliner" / "1", aliases=["fresh"]).version
    page.locator(f"tr:has(td:text-is('{number}')):has-text('latest')").wait_for()


def test_the_page_asks_for_the_token_and_keeps_it_for_the_tab(page: "Page", folder: Path, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.toml"
    tokens.write_text(f'[reader]\ntoken = "{READ}"\nscopes = ["read"]\n')
    tokens.chmod(0o600)
    with running_server(folder / "policies", tmp_path, "--http", "127.0.0.1:0", "--tokens", tokens) as running:
        show(page, running, "#/policies")
        page.get_by_label("Token").fill("wrong" * 8)
        page.get_by_role("button", name="Show").click()
        page.get_by_text("does not know the token").wait_for()
        page.get_by_label("Token").fill(READ)
        page.get_by_role("button", name="Show").click()
        page.get_by_role("heading", name="Policies").wait_for()
        page.reload()
        page.get_by_role("heading", name="Policies").wait_for()


COUNTING = """
window.asked = 0;
const own = fetch;
window.fetch = (...given) => { asked++; return own(...given); };
"""


def test_a_view_is_asked_for_within_two_seconds_less_often_if_it_takes_long_and_never_if_it_is_hidden(
    page: "Page", server: RunningServer
) -> None:
    held: list[Route] = []

    def hold(route: "Route") -> None:
        held.append(route)

    def asked() -> int:
        return int(page.evaluate("asked"))

    def passes(milliseconds: int) -> int:
        """Let the page's time pass; give the requests that it sent."""
        before = asked()
        page.evaluate("document.body.removeAttribute('data-ready')")
        page.clock.run_for(milliseconds)
        return asked() - before

    def drawn() -> None:
        page.wait_for_selector("body[data-ready]", state="attached")

    def answered(number: int) -> None:
        """Let the held request go on; the browser can send it after its page's time has passed."""
        while len(held) <= number:
            page.wait_for_timeout(10)
        held[number].continue_()
        drawn()

    page.clock.install(time=0)
    page.clock.pause_at(1000)
    page.add_init_script(COUNTING)
    show(page, server, "#/policies")
    for _ in range(2):
        assert passes(400) == 1
        drawn()
    page.route("**/page/*", hold)
    assert passes(400) == 1
    assert passes(1000) == 0
    answered(0)
    assert passes(5000) == 0
    assert passes(1000) == 1
    answered(1)
    page.evaluate("Object.defineProperty(document, 'hidden', {get: () => true, configurable: true})")
    assert passes(600_000) == 0
    with page.expect_request("**/page/*"):
        page.evaluate("delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))")

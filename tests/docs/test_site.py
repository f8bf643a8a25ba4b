"""The site is built as `make docs` builds it, and looked at in a browser."""

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest

from tests.docs.pages import ROOT
from tests.server.page.test_page_browser import started  # noqa: F401 - a fixture

if TYPE_CHECKING:
    from playwright.sync_api import Browser

_FETCHED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src", "object": "data"}
_NEEDED_LINKS = {"stylesheet", "icon", "preload", "prefetch", "preconnect", "dns-prefetch", "modulepreload"}
_IN_STYLE = re.compile(r"@import|url\(\s*['\"]?(?!data:)(?:https?:)?//")

LOOKED_AT = [
    "index.html",
    "tutorial-tune.html",
    "migrate-mlgo.html",
    "benchmarks.html",
    "gallery.html",
    "configuration.html",
    "reference/commands.html",
    "reference/errors.html",
    "reference/cpp.html",
    "reference/grpc.html",
    "reference/python/client.html",
]


def build(*options: str | Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", *options],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    built = build("--site-dir", folder)
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


class Fetches(HTMLParser):
    """Collects what a browser fetches by itself to show a page."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if tag == "link" and _NEEDED_LINKS & set(values.get("rel", "").split()):
            self.addresses.append(values.get("href", ""))
        self.addresses.append(values.get(_FETCHED.get(tag, ""), ""))


def test_no_page_and_no_style_of_the_site_fetches_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        parser = Fetches()
        parser.feed(page.read_text(encoding="utf-8"))
        assert [each for each in parser.addresses if re.match(r"(https?:)?//", each)] == [], page
    for style in site.rglob("*.css"):
        assert not _IN_STYLE.search(style.read_text(encoding="utf-8")), style


def test_every_page_says_of_which_version_of_the_changelog_it_is(site: Path) -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        version = tomllib.load(file)["project"]["version"]
    assert f"\n## {version} (" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    for name in ("index.html", "reference/errors.html"):
        assert f"PolicyBridge {version}" in (site / name).read_text(encoding="utf-8"), name


def test_the_reference_has_every_command_error_metric_and_library(site: Path) -> None:
    for page, words in {
        "commands": ["policybridge autotune export", "policybridge policies publish-weights", "--growth-limit"],
        "errors": ["InvalidError", "RESOURCE_EXHAUSTED", "Cure"],
        "metrics": ["policybridge_decision_seconds", "policybridge_ledger_lag_seconds", "transport"],
        "cpp": ["connect_grpcs", "LlvmModelRunner"],
        "c": ["pb_runner_evaluate_scalar", "pb_onnx_scheme"],
        "grpc": ["PolicyService.Session", "RepositoryService.PublishWeights", "DescribedTensors"],
        "python/train": ["InlineForSize", "Asking", "names_in_hex"],
    }.items():
        text = (site / "reference" / f"{page}.html").read_text(encoding="utf-8")
        assert [word for word in words if word not in text] == [], page


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site))) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (360, "dark")])
def test_pages_fit_a_desk_and_a_telephone_and_fetch_nothing_from_elsewhere(
    started: "Browser",  # noqa: F811 - the fixture
    address: str,
    width: int,
    scheme: Any,
) -> None:
    with started.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme) as context:
        page = context.new_page()
        page.set_default_timeout(60_000)
        asked, errors = list[str](), list[str]()
        page.on("request", lambda request: asked.append(request.url))
        page.on("pageerror", lambda error: errors.append(str(error)))
        for name in LOOKED_AT:
            page.goto(f"{address}/{name}")
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
        shown = page.evaluate("document.body.getAttribute('data-md-color-scheme')")
    assert shown == ("default" if scheme == "light" else "slate")
    assert errors == []
    assert [each for each in asked if not each.startswith((address, "data:", "blob:"))] == []


def test_the_search_finds_an_option(started: "Browser", address: str) -> None:  # noqa: F811 - the fixture
    page = started.new_page()
    page.set_default_timeout(60_000)
    page.goto(f"{address}/index.html")
    # Typed key by key, as by a person: the page looks for words when a key is let go.
    page.locator(".md-search__input").press_sequentially("growth-limit")
    page.locator(".md-search-result__link", has_text="growth").first.wait_for()
    page.close()


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """Make a site of two pages by the rules of the real one."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "README.md").write_text("# Start\n\n[Two](two.md#end)\n")
    (tmp_path / "docs" / "two.md").write_text("# Two\n\n## End\n")
    config = f"INHERIT: {ROOT}/mkdocs.yml\nhooks: []\nextra_css: []\nplugins: [search]\n"
    (tmp_path / "mkdocs.yml").write_text(f"{config}docs_dir: docs\nsite_dir: site\nnav: [README.md, two.md]\n")
    assert build("--config-file", tmp_path / "mkdocs.yml").returncode == 0
    return tmp_path


def test_a_link_that_leads_nowhere_ends_the_build(small: Path) -> None:
    (small / "docs" / "two.md").write_text("# Two\n")
    built = build("--config-file", small / "mkdocs.yml")
    assert built.returncode != 0
    assert "two.md#end" in built.stderr


def test_a_page_outside_of_the_navigation_ends_the_build(small: Path) -> None:
    (small / "docs" / "three.md").write_text("# Three\n")
    built = build("--config-file", small / "mkdocs.yml")
    assert built.returncode != 0
    assert "three.md" in built.stderr

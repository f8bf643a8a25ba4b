"""Takes pictures of a page, or of a command's output in a terminal, with headless Chromium."""

import base64
import html
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.text import Text

if TYPE_CHECKING:
    from playwright.sync_api import Page

QUALITY: Final = 60
"""WebP quality, out of 100: text stays sharp, and all pictures together fit into 300 KB."""

_TERMINAL: Final = """<!doctype html><meta charset="utf-8"><style>
body {{ margin: 0; background: #12181d; color: #d8dee4; width: max-content; }}
pre {{ margin: 0; padding: 16px 20px; font: 14px/1.35 "DejaVu Sans Mono", monospace; }}
</style><pre><b>$ {command}</b>\n{printed}</pre>"""


@contextmanager
def opened_page(width: int, height: int) -> Iterator["Page"]:
    """Open a tab of ``width`` times ``height`` CSS pixels in light colours."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - it is needed here alone

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        try:
            yield browser.new_page(viewport={"width": width, "height": height}, color_scheme="light")
        finally:
            browser.close()


def shoot(page: "Page", file: Path) -> None:
    """Write a picture of the tab to ``file``, as WebP."""
    session = page.context.new_cdp_session(page)
    shot = session.send("Page.captureScreenshot", {"format": "webp", "quality": QUALITY})
    file.write_bytes(base64.b64decode(shot["data"]))


def shoot_address(address: str, file: Path, *, ready: str = "body", width: int = 1120, height: int = 760) -> None:
    """Write a picture of the top of a page, after the CSS selector ``ready`` matches an element."""
    with opened_page(width, height) as page:
        page.goto(address)
        page.wait_for_selector(ready, state="attached")
        shoot(page, file)


def shoot_terminal(command: str, printed: str, file: Path) -> None:
    """Write a picture of a terminal that shows ``command`` and its output ``printed``, with ANSI colours."""
    with opened_page(800, 600) as page:
        page.set_content(_TERMINAL.format(command=html.escape(command), printed=_coloured(printed)))
        box = page.evaluate("({width: document.body.scrollWidth, height: document.body.scrollHeight})")
        page.set_viewport_size({"width": box["width"], "height": box["height"]})
        shoot(page, file)


def _coloured(printed: str) -> str:
    """Give ANSI text as HTML."""
    console = Console(record=True, file=StringIO(), width=max(map(len, printed.splitlines()), default=1))
    console.print(Text.from_ansi(printed.rstrip()), overflow="ignore", no_wrap=True)
    return console.export_html(inline_styles=True, code_format="{code}")

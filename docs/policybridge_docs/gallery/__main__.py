"""``python -m policybridge_docs.gallery --corpus DIR``: run the commands of docs/gallery.md and take its pictures.

The folder of the commands' files stays, and an existing training run in it is used again. It needs playwright
and Chromium, clang-22 and its plugin (POLICYBRIDGE_PLUGINS), and the corpus that ``make corpus`` makes.
"""

import argparse
import time
from pathlib import Path
from typing import Any, Final

from policybridge_client.page import PageClient
from policybridge_docs.gallery.commands import Folder, commands, finished, wait_for
from policybridge_docs.gallery.shots import shoot_address, shoot_terminal
from policybridge_docs.links import ROOT

_PICTURES: Final = ROOT / "docs" / "gallery"
_READY: Final = "body[data-ready]"
_SEEN: Final = 2000
"""The number of decisions of the server before its page is taken."""


def main() -> None:
    """Take all pictures."""
    parser = argparse.ArgumentParser(prog="python -m policybridge_docs.gallery", description=__doc__)
    parser.add_argument("--corpus", type=Path, default=ROOT / ".cache" / "corpus", help="(default: .cache/corpus)")
    parser.add_argument("--work", type=Path, default=ROOT / ".cache" / "gallery", help="folder of the commands' files")
    options = parser.parse_args()
    _PICTURES.mkdir(exist_ok=True)
    options.work.mkdir(parents=True, exist_ok=True)
    corpus = options.work / "corpus"
    corpus.unlink(missing_ok=True)
    corpus.symlink_to(options.corpus.resolve(strict=True))
    train, serve, score, top, tune = commands()
    folder = Folder(options.work)
    report = options.work / "run" / "report.html"
    if not report.exists():
        folder.printed(train)
    shoot_address(report.as_uri(), _PICTURES / "training.webp", height=1180)
    _while_served(folder, serve, score, top)
    scores = options.work / "scores.html"
    scores.write_text(scores.read_text(encoding="utf-8").replace(str(corpus.resolve()), "corpus"), encoding="utf-8")
    shoot_address(scores.as_uri(), _PICTURES / "score.webp")
    shoot_terminal(tune, folder.printed(tune), _PICTURES / "tuning.webp")


def _while_served(folder: Folder, serve: str, score: str, top: str) -> None:
    """Score, and take the server's page meanwhile."""
    with folder.started(serve) as (_, terminal):
        wait_for(b"ready ", terminal)
        with folder.started(score) as (scoring, said), PageClient(f"http:{folder.address}") as page:
            while scoring.poll() is None and _decisions(page.get("history")) < _SEEN:
                time.sleep(0.5)
            shoot_terminal(top, folder.printed(top), _PICTURES / "top.webp")
            shoot_address(f"http://{folder.address}/#/", _PICTURES / "page.webp", ready=_READY, height=560)
            finished(scoring, said)
            session = max(page.get("sessions"), key=lambda each: each["decisions"])["id"]
        shoot_address(f"http://{folder.address}/#/sessions/{session}", _PICTURES / "session.webp", ready=_READY)
        shoot_address(f"http://{folder.address}/#/runs", _PICTURES / "runs.webp", ready=_READY)


def _decisions(history: Any) -> int:
    return sum(sum(sample["decisions"].values()) for sample in history["samples"])


if __name__ == "__main__":
    main()

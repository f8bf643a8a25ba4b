"""Kill the server while compilers decide by the form of its version: each compile must end with the version's object.

    python -m tests.measures.kills_here [--kills N]

A compile whose server was killed before it had a session must end with LLVM's own object. Needs cmake, ninja, g++,
clang-22 and LLVM's headers. The exit status is 1 if an object is another one.
"""

import argparse
import json
import os
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.conftest import running_server
from tests.native.conftest import built
from tests.native.llvm.plugins import emit_demo
from tests.native.llvm.stores import Made, Tuner
from tests.server.ledger.asking import await_forms

MAJOR = "22"
MODULE = "libunwind/src/libunwind.cpp"


def kill_servers(tuner: Tuner, folder: Path, kills: int) -> Counter[str]:
    """Kill so many servers, at moments that are spread over a compile; count the objects by whose they are."""
    module = emit_demo(MAJOR, MODULE, folder)
    plain = tuner.plain(module, "-x", "ir", "-Oz")
    with running_server(None, folder) as server:
        await_forms(server.socket, "size")
        decided = _compiled(tuner, module, server.socket).output
        begun = time.monotonic()
        _compiled(tuner, module, server.socket)
        seconds = time.monotonic() - begun
    found: Counter[str] = Counter()
    for number in range(kills):
        with running_server(None, folder) as server:
            await_forms(server.socket, "size")
            killer = threading.Timer(seconds * number / kills, server.kill)
            killer.start()
            made = _compiled(tuner, module, server.socket)
            killer.join()
        has_session = json.loads((made.folder / "stats.json").read_text())["policy"] is not None
        expected = decided if has_session else plain
        whose = "the version's" if has_session else "LLVM's"
        found[whose if made.status == 0 and made.output == expected else "wrong"] += 1
    return found


def _compiled(tuner: Tuner, module: Path, address: str) -> Made:
    settings = {"policy": "size", "evaluate": "here", "retry_after": "0"}
    return tuner.compile(module, "-x", "ir", "-Oz", server=address, **settings)


def main() -> int:
    """Kill, and print the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=300)
    arguments = parser.parse_args()
    with TemporaryDirectory(prefix="pb-") as name:
        os.environ["XDG_CACHE_HOME"] = name
        found = kill_servers(Tuner.of(built, MAJOR, Path(name)), Path(name), arguments.kills)
    print(", ".join(f"{whose}: {count}" for whose, count in sorted(found.items())))
    return 1 if found["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())

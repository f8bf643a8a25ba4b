"""A model as users of ML-Compiler-Bridge write it, on its own Python package: answers what was asked for, plus one.

    python pipes_peer.py FORMAT BASE KIND COMPILES

Started with `compilerinterface` on the path, and outside of this project's packages.
"""

import ctypes
import sys
from typing import Any

from compilerinterface import PipeCompilerInterface  # type: ignore[import-not-found]

_MADE = {"int": int, "float": float, "long": ctypes.c_long, "double": ctypes.c_double}
"""How the package is told which of C's types to write."""


def answer(kind: str, sent: list[Any]) -> Any:
    made = _MADE[kind.removeprefix("v")]
    return [made(x + 1) for x in sent] if kind.startswith("v") else made(sent[0] + 1)


def main() -> None:
    form, base, kind, compiles = sys.argv[1:]
    model = PipeCompilerInterface(form, base)
    print("made", flush=True)
    for _ in range(int(compiles)):
        model.reset_pipes()
        try:
            while True:
                features = model.evaluate()
                sent = features["x"] if form == "json" else list(features[0])
                model.populate_buffer(answer(kind, sent if isinstance(sent, list) else [sent]))
        except (ValueError, StopIteration):
            model.close_pipes()  # how the package tells that the compiler has gone


if __name__ == "__main__":
    main()

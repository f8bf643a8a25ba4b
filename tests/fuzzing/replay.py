"""``python -m tests.fuzzing.replay``: give every input of the corpus to its target, without a fuzzer."""

import sys
import traceback
from collections.abc import Iterator

from tests.fuzzing.__main__ import CORPUS
from tests.fuzzing.seeds import seeds
from tests.fuzzing.targets import TARGETS


def main() -> int:
    """Print what fails; the exit status is 1 then."""
    failed = list(_failed())
    print("\n".join(failed) or f"{len(list(CORPUS.glob('*/*')))} inputs of {len(TARGETS)} targets")
    return 1 if failed else 0


def _failed() -> Iterator[str]:
    valid = seeds()
    for name, target in TARGETS.items():
        inputs = {file.name: file.read_bytes() for file in sorted((CORPUS / name).iterdir())}
        if not set(valid.get(name, ())) <= set(inputs.values()):
            yield f"{name}: the corpus lacks valid inputs; python -m tests.fuzzing.seeds {CORPUS.name} writes them"
        with target() as run:
            for file, data in inputs.items():
                try:
                    run(data)
                except Exception:
                    yield f"{name}: {file}\n{traceback.format_exc()}"


if __name__ == "__main__":
    sys.exit(main())

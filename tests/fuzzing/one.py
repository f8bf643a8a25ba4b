"""``python -m tests.fuzzing.one TARGET``: one target under atheris; the other arguments are libFuzzer's."""

import sys
from typing import Final

import atheris

_TESTED: Final = ["policybridge_core", "policybridge_serdes", "policybridge_server", "policybridge_client"]


def main() -> None:
    """Instrument the code under test while it is imported, and fuzz."""
    with atheris.instrument_imports(include=_TESTED):
        from tests.fuzzing.targets import TARGETS  # noqa: PLC0415

        target = TARGETS[sys.argv.pop(1)]()
    with target as run:
        atheris.Setup(sys.argv, run, enable_python_coverage=True)
        atheris.Fuzz()


if __name__ == "__main__":
    main()

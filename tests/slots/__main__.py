"""See `tests.slots.command`."""

import sys

from tests.slots.command import main

if __name__ == "__main__":
    sys.exit(main())

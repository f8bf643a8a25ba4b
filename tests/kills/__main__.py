"""See `tests.kills.command`."""

import sys

from tests.kills.command import main

if __name__ == "__main__":
    sys.exit(main())

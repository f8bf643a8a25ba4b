"""See `tests.attacks.command`."""

import sys

from tests.attacks.command import main

if __name__ == "__main__":
    sys.exit(main())

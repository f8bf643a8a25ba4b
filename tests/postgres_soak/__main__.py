"""See `tests.postgres_soak.command`."""

import sys

from tests.postgres_soak.command import main

if __name__ == "__main__":
    sys.exit(main())

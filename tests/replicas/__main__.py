"""See `tests.replicas.command`."""

import sys

from tests.replicas.command import main

if __name__ == "__main__":
    sys.exit(main())

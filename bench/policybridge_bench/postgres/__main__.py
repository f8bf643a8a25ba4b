"""See `policybridge_bench.postgres.command`."""

import sys

from policybridge_bench.postgres.command import main

if __name__ == "__main__":
    sys.exit(main())

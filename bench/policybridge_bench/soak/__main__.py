"""See `policybridge_bench.soak.command`."""

import sys

from policybridge_bench.soak.command import main

if __name__ == "__main__":
    sys.exit(main())

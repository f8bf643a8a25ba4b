"""See `policybridge_bench.slots.command`."""

import sys

from policybridge_bench.slots.command import main

if __name__ == "__main__":
    sys.exit(main())

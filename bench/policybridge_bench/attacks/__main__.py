"""See `policybridge_bench.attacks.command`."""

import sys

from policybridge_bench.attacks.command import main

if __name__ == "__main__":
    sys.exit(main())

"""See `policybridge_bench.replicas.command`."""

import sys

from policybridge_bench.replicas.command import main

if __name__ == "__main__":
    sys.exit(main())

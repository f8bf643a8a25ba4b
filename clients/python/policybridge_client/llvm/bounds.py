"""The defaults of what bounds a policy's decisions, and the wait for them."""

from typing import Final

GROWTH_LIMIT: Final = 4.0
"""Default factor of a module's size that a policy may add to it."""

RETRY_AFTER: Final = 60.0
"""Default seconds for which a server's time-out is remembered."""

"""The store of tuned decisions, and the log of the calls about which a compilation asked."""

from typing import TYPE_CHECKING

from policybridge_core.lazy import public_names

if TYPE_CHECKING:
    from policybridge_client.decisions.api import *  # noqa: F403

__getattr__, __dir__ = public_names(__name__)

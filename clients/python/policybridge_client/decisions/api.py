"""The public names of the package, which imports them when one of them is asked for."""

from policybridge_client.decisions.files import path_in_store, read_store, update_store, write_store
from policybridge_client.decisions.finding import FoundStore, find_store
from policybridge_client.decisions.format import format_store, parse_store
from policybridge_client.decisions.keys import FeaturesKeys, function_key, site_key
from policybridge_client.decisions.passes import ALL_FUNCTIONS, PassChoice
from policybridge_client.decisions.sites import SiteLog, parse_sites, read_sites
from policybridge_client.decisions.store import Decision, Heading, Section, Store
from policybridge_client.decisions.text import By, Level

__all__ = [
    "ALL_FUNCTIONS",
    "By",
    "Decision",
    "FeaturesKeys",
    "FoundStore",
    "Heading",
    "Level",
    "PassChoice",
    "Section",
    "SiteLog",
    "Store",
    "find_store",
    "format_store",
    "function_key",
    "parse_sites",
    "parse_store",
    "path_in_store",
    "read_sites",
    "read_store",
    "site_key",
    "update_store",
    "write_store",
]

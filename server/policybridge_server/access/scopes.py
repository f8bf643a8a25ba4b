"""The scopes of tokens."""

from enum import StrEnum


class Scope(StrEnum):
    """A set of calls that a token permits.

    Attributes:
        EVALUATE: ask for advice, and report outcomes; of these, roll-outs need others beside, see `REPORT`.
        REPORT: report outcomes that decide a roll-out alone.
        READ: look at policies, versions, statistics and services.
        FOLLOW: take all versions with their files, as a replica does.
        PUBLISH: publish versions and set aliases.
        ADMIN: everything.

    """

    EVALUATE = "evaluate"
    REPORT = "report"
    READ = "read"
    FOLLOW = "follow"
    PUBLISH = "publish"
    ADMIN = "admin"

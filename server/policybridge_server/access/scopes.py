"""What a token may be for."""

from enum import StrEnum


class Scope(StrEnum):
    """What a client may do.

    Attributes:
        EVALUATE: ask for advice, and report outcomes.
        READ: look at policies, versions, statistics and services.
        FOLLOW: take all versions with their files, as a replica does.
        PUBLISH: publish versions and set aliases.
        ADMIN: everything.

    """

    EVALUATE = "evaluate"
    READ = "read"
    FOLLOW = "follow"
    PUBLISH = "publish"
    ADMIN = "admin"

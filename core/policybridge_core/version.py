"""The version of this distribution, found when it is asked for: reading it takes milliseconds."""


def version() -> str:
    """Give the version; ``unknown`` in a tree that is not installed."""
    from importlib.metadata import PackageNotFoundError  # noqa: PLC0415 - 20 ms that a compilation should not pay
    from importlib.metadata import version as installed  # noqa: PLC0415

    try:
        return installed("policybridge")
    except PackageNotFoundError:
        return "unknown"

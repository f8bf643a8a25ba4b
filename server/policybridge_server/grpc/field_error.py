"""An error that knows which field of the request it is about."""

from policybridge_core.errors import InvalidError


class FieldError(InvalidError):
    """A field of the request that cannot be used.

    Args:
        field: its path in the message, `inputs[0].shape` say.
        message: what is wrong, and what would be right.

    """

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field

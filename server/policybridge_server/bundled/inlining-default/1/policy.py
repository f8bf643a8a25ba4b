"""Inlining as LLVM would do it by itself: objects come out byte for byte as without a policy."""


class Policy:
    """Echoes the feature ``inlining_default``, which the compiler sends under -inliner-interactive-include-default."""

    def evaluate(self, observation, session):
        """Give 1 to inline this call, 0 to leave it."""
        return observation["inlining_default"]

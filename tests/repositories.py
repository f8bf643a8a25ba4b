"""Policy repositories for tests, written as a user would write them."""

from pathlib import Path
from textwrap import dedent


def write_python(repository: Path, name: str, source: str, toml: str = "", version: int = 1) -> None:
    """Add a Python policy: the body of its file, and what policy.toml says beside the backend."""
    folder = repository / name / str(version)
    folder.mkdir(parents=True)
    (folder / "policy.py").write_text(dedent(source))
    (repository / name / "policy.toml").write_text(f'backend = "python"\n{dedent(toml)}')


def answering(expression: str) -> str:
    """Give the source of a policy that answers ``expression`` of ``observation`` and ``session``."""
    return f"class Policy:\n    def evaluate(self, observation, session):\n        return {expression}\n"

"""Changes chosen by hand: each breaks a sentence of the documentation."""

from pathlib import Path
from typing import Final

from tests.mutants.operators import Mutant
from tests.mutants.targets import SERVER

_CHANGES: Final = [
    # One bad observation costs its session alone.
    (
        "engine/evaluator.py",
        "return [result for decision in decisions for result in self._batch(model, [decision])]",
        "return [self._failures.add(error)] * len(decisions)",
    ),
    ("engine/evaluator.py", "if np.isnan(_elements(row[name])).any():", "if False:"),
    ("engine/head.py", "logits = np.where(legal, logits, -np.inf)", "pass"),
    ("engine/head.py", "if np.isneginf(logits[best]):", "if False:"),
    # More than 200 loaded versions are counted together; the numbers of the last 16 unloaded ones stay.
    ("counters.py", "_MOST_LOADED: Final = 200", "_MOST_LOADED: Final = 100_000"),
    ("counters.py", "_MOST_GONE: Final = 16", "_MOST_GONE: Final = 4"),
    # What was acknowledged survives.
    ("ledger/sqlite.py", 'self._run("ROLLBACK TO record")', "pass"),
    ("ledger/database.py", "                self._check_place()\n", ""),
    (
        "ledger/writer.py",
        "self._post_to_loop(acknowledge, failed or refused.get(position))",
        "self._post_to_loop(acknowledge, None)",
    ),
    ("ledger/recorder.py", "            self._lost += len(decisions)\n", ""),
    ("ledger/privacy.py", "PRIVATE: Final = 0o600", "PRIVATE: Final = 0o644"),
    ("ledger/privacy.py", "if status.st_uid not in (os.geteuid(), 0):", "if False:"),
    # Tokens and ports.
    ("access/tokens.py", "if scope not in client.scopes and Scope.ADMIN not in client.scopes:", "if False:"),
    ("access/tokens.py", "_SHORTEST: Final = 20", "_SHORTEST: Final = 2"),
    ("access/access.py", "        if not self._insecure:\n", "        if False:\n"),
    ("access/access.py", "Scope.ADMIN)", "Scope.READ)"),
    ("access/sockets.py", "mode: int = 0o600", "mode: int = 0o666"),
]


def by_hand(root: Path) -> list[Mutant]:
    """Give the changes; each must fit its file at exactly one place."""
    found = []
    for file, old, new in _CHANGES:
        path = f"{SERVER}/{file}"
        source = (root / path).read_text()
        assert source.count(old) == 1, f"{path} has {source.count(old)} times {old!r}"
        start = source.index(old)
        found.append(Mutant(path, source.count("\n", 0, start) + 1, old, new, start))
    return found

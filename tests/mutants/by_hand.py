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
    ("ledger/privacy.py", "(os.geteuid(), 0)", "(os.geteuid(), 1)"),
    ("ledger/privacy.py", "if status.st_uid not in (os.geteuid(), 0):", "if False:"),
    ("ledger/sqlite.py", "                self._lifetime.save()", "                pass"),
    ("ledger/sqlite.py", "            self._database.empty_log()\n", ""),
    ("ledger/writer.py", "            size += item[0].size", "            pass"),
    ("ledger/writer.py", "min(2 * self._step, _STEP)", "self._step"),
    ("ledger/writer.py", "max(1, min(self._step, size) // 8)", "self._step"),
    ("ledger/writer.py", "self._written_bytes - self._pruned_bytes >= _PRUNE_BYTES", "False"),
    ("ledger/writer.py", "        self._pruned_bytes = self._written_bytes\n", ""),
    ("ledger/recorder.py", "self._told = 10 * self.count", "self._told = 11 * self.count"),
    (
        "ledger/retention.py",
        "SELECT number FROM sessions WHERE closed IS NOT NULL",
        "SELECT number FROM sessions WHERE 1",
    ),
    ("ledger/clock.py", "max(0.0, later", "max(-1e9, later"),
    # A model that hangs, fails or is slow costs its own sessions alone.
    ("engine/evaluator.py", "isinstance(error, AbandonedError) and", "isinstance(error, AbandonedError) or"),
    ("engine/model_host.py", "if worker is not self.worker:", "if False:"),
    ("engine/model_host.py", "if len(self._stuck) > _MOST_STUCK:", "if False:"),
    ("engine/worker.py", "        self._last, self._abandoned = last, True", "        self._last = last"),
    ("engine/pace.py", "min(2 * self._needed, _MOST_RUNS)", "self._needed"),
    ("engine/batcher.py", "                decision.session.failures += 1\n", "                pass\n"),
    ("engine/admission.py", "        self._counts[client] -= 1\n", ""),
    ("engine/failures.py", "len(self._logged) < _MOST_PLACES", "True"),
    # Clients hold only so much of the server's memory.
    ("budget.py", "if self.held > self._most:", "if False:"),
    ("budget.py", "if memory.held + more > memory.most:", "if False:"),
    ("budget.py", "self._memory.held -= self._reserved - kept", "pass"),
    # Tokens and ports.
    ("access/tokens.py", "if scope not in client.scopes and Scope.ADMIN not in client.scopes:", "if False:"),
    ("access/tokens.py", "_SHORTEST: Final = 20", "_SHORTEST: Final = 2"),
    ("access/access.py", "        if not self._insecure:\n", "        if False:\n"),
    ("access/access.py", "Scope.ADMIN)", "Scope.READ)"),
    ("access/sockets.py", "mode: int = 0o600", "mode: int = 0o666"),
    ("access/tokens.py", "len(authorization) > 1 or ", ""),
    ("access/tokens.py", "trusted = not client.scopes.isdisjoint((Scope.REPORT, Scope.ADMIN))", "trusted = True"),
    ("access/access.py", 'return "" if is_loopback_address(host) else', 'return "" if True else'),
    ("access/addresses.py", "and all(", "and any("),
    ("access/files.py", "stat.S_IRWXO | stat.S_IWGRP", "stat.S_IWOTH | stat.S_IWGRP"),
    # A roll-out is judged by files that both versions compiled, and by no one reporter alone.
    ("engine/trials.py", "view.alias != rollout.alias", "False"),
    ("engine/trials.py", "self.failed.setdefault(file, is_new)", "self.failed[file] = is_new"),
    ("rollouts/comparison.py", "if name != FAILED and base <= 0:", "if False:"),
    ("rollouts/comparison.py", "(1 - confidence) / 2, (1 + confidence) / 2", "(1 - confidence), confidence"),
    ("rollouts/failing.py", "if share < 1:", "if True:"),
    ("rollouts/failing.py", "ERROR: Final = 0.01", "ERROR: Final = 0.5"),
    ("rollouts/judge.py", "if evidence < 1 / ERROR:", "if True:"),
    ("rollouts/judge.py", "2 ** (rollout.looks + 1)", "1"),
    ("rollouts/judge.py", "if stand.files < rollout.files << rollout.looks:", "if stand.files < rollout.files:"),
    ("rollouts/judge.py", "fewest = min(groups, key=", "fewest = max(groups, key="),
    ("rollouts/judge.py", "if policy.shared_out is None:", "if False:"),
    ("rollouts/judge.py", '*await self._publisher.peers.gather("trials")', ""),
    (
        "publishing/rollouts.py",
        "        self._permission.check()\n        return await self._change(name, state",
        "        return await self._change(name, state",
    ),
    ("publishing/rollouts.py", 'rollout.state == "promoted" and rollout.alias != LATEST', "False"),
    ("publishing/rollouts.py", "if (now.version, now.alias) != (wanted.version, wanted.alias):", "if False:"),
    ("publishing/rollouts.py", 'reason="", looks=0)', 'reason="")'),
    ("publishing/rollouts.py", "number < latest and not policy.holds_back(number)", "number < latest"),
    ("repository/rollout.py", "self.base < number <= self.version", "number == self.version"),
    ("repository/rollout.py", "        if not file:\n            return False\n", ""),
    ("repository/numbers.py", "known.folder == folder", "True"),
    ("repository/numbers.py", "max(given, highest)", "given"),
    # A publication is whole or undone; retired versions stay while they have sessions.
    ("publishing/publication.py", "            files.place(folder)\n            if origin", "            if origin"),
    ("publishing/publication.py", "if identity not in (None, found):", "if False:"),
    ("publishing/publication.py", "                check_compatible(loaded, current, clients)", "                pass"),
    ("publishing/publication.py", "        self._undo.callback(files.remove)\n", ""),
    ("publishing/publisher.py", "            if names:\n", "            if False:\n"),
    ("publishing/publisher.py", "            check_not_rolled_out(policy, alias)\n", ""),
    ("publishing/publisher.py", "policy.given + 1", "max(policy.versions, default=0) + 1"),
    ("publishing/retention.py", "if policy.folder / str(number) not in loaded:", "if True:"),
    ("publishing/retention.py", "        mark_retired(policy, numbers)", "        pass"),
    ("publishing/retention.py", "if not policy.named(number)", ""),
    ("publishing/watcher.py", "if time.time() - changed >= SETTLED", ""),
    ("publishing/watcher.py", "if self._tried.get(folder) != changed", ""),
    ("publishing/permission.py", "        if not self.allowed:\n", "        if False:\n"),
    (
        "publishing/permission.py",
        "        if policy.folder.parent not in self._repository.writable:\n",
        "        if False:\n",
    ),
    ("publishing/compatibility.py", "[*_smallest_client(new, old), *clients]", "_smallest_client(new, old)"),
    ("publishing/compatibility.py", "[*_smallest_client(new, old), *clients]", "clients"),
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

"""Changes chosen by hand: each breaks a sentence of the documentation."""

from pathlib import Path
from typing import Final

from tests.mutants.operators import Mutant
from tests.mutants.targets import SERVER, nodes

_CHANGES: Final = [
    # One bad observation costs its session alone.
    (
        "engine/evaluator.py",
        "return [result for decision in decisions for result in self._batch(model, [decision])]",
        "return [self._failures.add(error)] * len(decisions)",
    ),
    ("engine/evaluator.py", "if np.isnan(_elements(row[name])).any():", "if False:"),
    ("engine/head.py", "scores = np.where(legal, scores, -np.inf)", "pass"),
    ("engine/head.py", "if np.isneginf(scores[best]):", "if False:"),
    # More than 200 loaded versions are counted together; the numbers of the last 16 unloaded ones stay.
    ("counters.py", "_MOST_LOADED: Final = 200", "_MOST_LOADED: Final = 100_000"),
    ("counters.py", "_MOST_GONE: Final = 16", "_MOST_GONE: Final = 4"),
    # What was acknowledged survives.
    (
        "ledger/sqlite.py",
        'self._run("ROLLBACK TO record")',
        "pass",
        "ledger/test_bounds::test_of_a_record_that_cannot_be_kept_nothing_is_kept",
    ),
    (
        "ledger/database.py",
        "                self._check_place()\n",
        "",
        "ledger/test_identity::test_no_outcome_is_acknowledged_while_the_ledger_lies_elsewhere_and_nothing_is_lost_once_it_is_back",
    ),
    (
        "ledger/writer.py",
        "(acknowledge, failed or refused.get(position))",
        "(acknowledge, None)",
        "ledger/test_bounds::test_what_could_not_be_written_is_not_acknowledged_and_is_written_when_there_is_room_again",
    ),
    (
        "ledger/recorder.py",
        "            self._lost += len(decisions)\n",
        "",
        "ledger/test_bounds::test_a_store_that_cannot_keep_up_costs_decisions_of_the_record_and_says_so",
    ),
    ("ledger/privacy.py", "PRIVATE: Final = 0o600", "PRIVATE: Final = 0o644"),
    ("ledger/privacy.py", "(os.geteuid(), 0)", "(os.geteuid(), 1)"),
    ("ledger/privacy.py", "if status.st_uid not in (os.geteuid(), 0):", "if False:"),
    ("ledger/sqlite.py", "                self._lifetime.save()", "                pass", "ledger/test_clock"),
    (
        "ledger/sqlite.py",
        "            self._database.empty_log()\n",
        "",
        "ledger/test_writer::test_a_backlog_larger_than_what_is_free_is_written_as_far_as_there_is_room_the_oldest_first",
    ),
    ("ledger/writer.py", "            size += item[2]", "            pass", "ledger/test_transactions"),
    ("ledger/writer.py", "min(2 * self._step, _STEP)", "self._step", "ledger/test_transactions"),
    ("ledger/writer.py", "max(1, min(self._step, size) // 8)", "self._step", "ledger/test_transactions"),
    (
        "ledger/writer.py",
        "self._written_bytes - self._pruned_bytes >= _PRUNE_BYTES",
        "False",
        "ledger/test_transactions",
    ),
    ("ledger/writer.py", "        self._pruned_bytes = self._written_bytes\n", "", "ledger/test_transactions"),
    ("ledger/recorder.py", "self._told = 10 * self.count", "self._told = 11 * self.count", "ledger/test_transactions"),
    (
        "ledger/retention.py",
        "SELECT number FROM sessions WHERE closed IS NOT NULL",
        "SELECT number FROM sessions WHERE 1",
        "ledger/test_bounds::test_above_its_bytes_a_ledger_drops_the_oldest_sessions_and_gives_the_room_back",
    ),
    ("ledger/clock.py", "max(0.0, later", "max(-1e9, later"),
    # A model that hangs, fails or is slow costs its own sessions alone.
    (
        "engine/evaluator.py",
        "isinstance(error, AbandonedError) and",
        "isinstance(error, AbandonedError) or",
        "engine/test_misbehaving::test_an_error_that_cannot_be_told_as_it_is_costs_its_session_alone_and_is_told_shortened",
    ),
    (
        "engine/model_host.py",
        "if worker.abandoned:",
        "if False:",
        "engine/test_misbehaving::test_a_policy_that_hangs_fails_those_who_wait_and_goes_on_for_the_others",
    ),
    ("engine/model_host.py", "if worker.abandoned:", "if worker is not self.worker:", "engine/test_model_host"),
    (
        "engine/model_host.py",
        "if len(self._stuck) > _MOST_STUCK:",
        "if False:",
        "engine/test_misbehaving::test_a_policy_that_hangs_again_and_again_ends_in_errors_and_not_in_ever_more_threads",
    ),
    (
        "engine/worker.py",
        "        self._last, self._abandoned = last, True",
        "        self._last = last",
        "engine/test_worker",
    ),
    ("engine/pace.py", "min(2 * self._needed, _MOST_RUNS)", "self._needed"),
    (
        "engine/batcher.py",
        "                decision.session.failures += 1\n",
        "                pass\n",
        "rollouts/test_failing",
    ),
    (
        "engine/admission.py",
        "        self._counts[client] -= 1\n",
        "",
        "transports/test_limits::test_sessions_beyond_those_of_a_client_or_of_all_are_refused_until_one_ends",
    ),
    ("engine/failures.py", "len(self._logged) < _MOST_PLACES", "True"),
    # Clients hold only so much of the server's memory.
    ("budget/memory.py", "if self.held > self._most:", "if False:", "transports/test_budgets"),
    ("budget/memory.py", "if self.held + size > self.most:", "if False:", "transports/test_budgets"),
    (
        "budget/memory.py",
        "if self.held + size > memory.most - memory.held - size:",
        "if False:",
        "transports/test_budgets",
    ),
    ("budget/memory.py", "self._pool.give(self._reserved - kept)", "pass", "transports/test_budgets"),
    # … and of its turns and threads.
    ("budget/turns.py", "self._begun >= _BEGUN or perf_counter() > end", "False", "transports/test_peer_turns"),
    ("budget/turns.py", "if self._queue or self._begun >= _BEGUN:", "if False:", "transports/test_peer_turns"),
    ("budget/work.py", "not self.running or self.running + 1 < free", "True", "transports/test_peer_work"),
    # Tokens and ports.
    (
        "access/tokens.py",
        "if scope not in client.scopes and Scope.ADMIN not in client.scopes:",
        "if False:",
        "access/test_tokens::test_a_token_is_good_for_its_scopes_alone",
    ),
    (
        "access/tokens.py",
        "_SHORTEST: Final = 20",
        "_SHORTEST: Final = 2",
        "access/test_tokens::test_a_file_of_tokens_that_cannot_be_used_is_refused_without_telling_a_token",
    ),
    (
        "access/access.py",
        "        if not self._insecure:\n",
        "        if False:\n",
        "access/test_addresses::test_one_of_the_two_is_not_enough",
    ),
    (
        "access/access.py",
        "Scope.ADMIN)",
        "Scope.READ)",
        "access/test_tokens::test_a_service_of_another_distribution_needs_admin_unless_it_names_its_scope",
    ),
    ("access/sockets.py", "        path.chmod(self.mode)", "        pass"),
    (
        "access/tokens.py",
        "len(authorization) > 1 or ",
        "",
        "access/test_tokens::test_a_call_with_two_authorizations_is_unauthenticated_even_if_both_are_good",
    ),
    (
        "access/tokens.py",
        "trusted = not client.scopes.isdisjoint((Scope.REPORT, Scope.ADMIN))",
        "trusted = True",
        "access/test_rules",
    ),
    (
        "access/access.py",
        'return "" if is_loopback_address(host) else',
        'return "" if True else',
        "access/test_rules",
    ),
    (
        "access/addresses.py",
        "and all(",
        "and any(",
        "access/test_addresses::test_a_name_with_several_addresses_is_loopback_if_all_of_them_are",
    ),
    (
        "access/files.py",
        "stat.S_IRWXO | stat.S_IWGRP",
        "stat.S_IWOTH | stat.S_IWGRP",
        "access/test_tokens::test_a_file_of_tokens_that_others_can_read_or_its_group_can_write_is_refused",
    ),
    # A roll-out is judged by files that both versions compiled, and by no one reporter alone.
    ("engine/trials.py", "view.alias != rollout.alias", "False", "rollouts/test_failing"),
    ("engine/trials.py", "self.failed.setdefault(file, is_new)", "self.failed[file] = is_new"),
    ("rollouts/comparison.py", "if name != FAILED and base <= 0:", "if False:"),
    ("rollouts/comparison.py", "(1 - confidence) / 2, (1 + confidence) / 2", "(1 - confidence), confidence"),
    ("rollouts/failing.py", "if share < 1:", "if True:"),
    ("rollouts/failing.py", "ERROR: Final = 0.01", "ERROR: Final = 0.5"),
    ("rollouts/judge.py", "if evidence < 1 / ERROR:", "if True:", "rollouts/test_failing"),
    ("rollouts/judge.py", "2 ** (rollout.looks + 1)", "1"),
    ("rollouts/judge.py", "if stand.files < rollout.files << rollout.looks:", "if stand.files < rollout.files:"),
    ("rollouts/judge.py", "fewest = min(groups, key=", "fewest = max(groups, key="),
    (
        "rollouts/judge.py",
        "if policy.shared_out is None:",
        "if False:",
        "publishing/test_rollouts::test_a_newer_version_ends_a_roll_out_to_latest",
    ),
    ("rollouts/judge.py", '*await self._publisher.peers.gather("trials")', "", "rollouts/test_failing"),
    (
        "publishing/rollouts.py",
        "        self._permission.check()\n        return await self._change(name, state",
        "        return await self._change(name, state",
        "publishing/test_steps",
    ),
    (
        "publishing/rollouts.py",
        'rollout.state == "promoted" and rollout.alias != LATEST',
        "False",
        "publishing/test_rollout_steps",
    ),
    ("publishing/rollouts.py", "if (now.version, now.alias) != (wanted.version, wanted.alias):", "if False:"),
    ("publishing/rollouts.py", 'reason="", looks=0)', 'reason="")'),
    (
        "publishing/rollouts.py",
        "number < latest and not policy.holds_back(number)",
        "number < latest",
        "publishing/test_rollout_steps",
    ),
    ("repository/rollout.py", "self.base < number <= self.version", "number == self.version"),
    ("repository/rollout.py", "        if not file:\n            return False\n", ""),
    (
        "repository/numbers.py",
        "known.folder == folder",
        "True",
        "repository/test_checks",
    ),
    (
        "repository/numbers.py",
        "max(given, highest)",
        "given",
        "repository/test_checks",
    ),
    # A publication is whole or undone; retired versions stay while they have sessions.
    ("publishing/publication.py", "        self._files.place(new.folder)\n", ""),
    (
        "publishing/publication.py",
        "if new.identity not in (None, found):",
        "if False:",
        "publishing/test_number_steps::test_a_version_that_a_replica_keeps_is_adopted_under_its_number_or_dropped",
    ),
    (
        "publishing/publication.py",
        "            check_compatible(loaded, current, clients)",
        "            pass",
        "publishing/test_steps",
    ),
    (
        "publishing/publication.py",
        "        self._undo.callback(files.remove)\n",
        "",
        "publishing/test_steps",
    ),
    (
        "publishing/publisher.py",
        "            if names:\n",
        "            if False:\n",
        "publishing/test_steps publishing/test_number_steps",
    ),
    (
        "publishing/publisher.py",
        "            check_not_rolled_out(policy, alias)\n",
        "",
        "publishing/test_steps publishing/test_number_steps",
    ),
    (
        "publishing/numbering.py",
        "policy.given + 1",
        "max(policy.versions, default=0) + 1",
        "publishing/test_number_steps",
    ),
    (
        "publishing/retention.py",
        "if policy.folder / str(number) not in loaded:",
        "if True:",
        "publishing/test_number_steps",
    ),
    (
        "publishing/retention.py",
        "        mark_retired(policy, numbers)",
        "        pass",
        "publishing/test_number_steps",
    ),
    (
        "publishing/retention.py",
        "if not policy.named(number)",
        "",
        "publishing/test_number_steps",
    ),
    (
        "publishing/watcher.py",
        "if time.time() - changed >= SETTLED",
        "",
        "publishing/test_watcher::test_a_slow_copy_is_left_alone_until_nothing_changes_any_more",
    ),
    (
        "publishing/watcher.py",
        "if self._tried.get(folder) != changed",
        "",
        "publishing/test_steps::test_a_folder_that_is_refused_is_not_tried_again_until_it_changes",
    ),
    (
        "publishing/permission.py",
        "        if not self.allowed:\n",
        "        if False:\n",
        "publishing/test_steps publishing/test_rollout_steps",
    ),
    (
        "publishing/permission.py",
        "        if policy.folder.parent not in self._repository.writable:\n",
        "        if False:\n",
        "publishing/test_publish::test_bundled_policies_are_left_alone",
    ),
    (
        "publishing/compatibility.py",
        "[*_smallest_clients(new, old), *clients]",
        "_smallest_clients(new, old)",
        "publishing/test_steps::test_a_version_must_take_what_a_client_sends_beyond_what_it_has_to",
    ),
    (
        "publishing/compatibility.py",
        "[*_smallest_clients(new, old), *clients]",
        "clients",
        "publishing/test_steps::test_a_version_that_clients_of_the_one_before_could_not_use_is_undone",
    ),
]


def by_hand(root: Path) -> list[Mutant]:
    """Give the changes; each must fit its file at exactly one place."""
    found = []
    for file, old, new, *tests in _CHANGES:
        path = f"{SERVER}/{file}"
        source = (root / path).read_text()
        assert source.count(old) == 1, f"{path} has {source.count(old)} times {old!r}"
        start = source.index(old)
        found.append(Mutant(path, source.count("\n", 0, start) + 1, old, new, start, nodes(" ".join(tests))))
    return found

"""The checks after a kill: all that was acknowledged is there, and the files are whole."""

import itertools
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from policybridge_bench.network import SIGNATURE
from policybridge_client.policies import RepositoryClient
from policybridge_core.errors import PolicyBridgeError
from policybridge_serdes import Values
from policybridge_server.ledger.query import SessionRecord
from policybridge_server.ledger.reader import LedgerReader
from tests.kills.asker import digested, observed
from tests.kills.messages import Acknowledged, Asked, Named, Naming, Published, Said

_LEAST_KEPT = 0.5
"""Part of its bound that a ledger has at least, when retention has dropped something."""

_SOON = 2.0
"""Seconds after which a decision that nobody acknowledged is meant to be on disk."""


@dataclass
class Figures:
    """Counts of acknowledged records, and faults.

    Attributes:
        decisions: that were acknowledged.
        dropped: of them, those of sessions that retention dropped in their turn.
        ends: sessions whose end was acknowledged.
        published: versions that were acknowledged.
        named: changes of `latest` that were acknowledged: publications, steps of roll-outs, ways back.
        late: the most decisions of a session that never reports which were missing though made some seconds before.
        faults: a sentence for each lost or damaged record.
        killed: processes by kind.
        jumps: of the clocks, by kind.
        blocks: parts of the run that are over.

    """

    decisions: int = 0
    dropped: int = 0
    ends: int = 0
    published: int = 0
    named: int = 0
    late: int = 0
    faults: list[str] = field(default_factory=list)
    killed: Counter[str] = field(default_factory=Counter)
    jumps: Counter[str] = field(default_factory=Counter)
    blocks: int = 0

    @property
    def kills(self) -> int:
        """The number of killed processes."""
        return self.killed.total()

    def blame(self, faults: Iterable[str]) -> None:
        """Count faults, each once."""
        self.faults += [each for each in dict.fromkeys(faults) if each not in self.faults]


class LedgerCheck:
    """Compares the ledger with what its clients were told.

    Args:
        ledger: the file, or the database's URL.
        most: bytes that the server lets it have; ``None``: it drops nothing.
        figures: are counted here.

    """

    def __init__(self, ledger: Path | str, most: int | None, figures: Figures) -> None:
        self._ledger = ledger
        self._most = most
        self._figures = figures
        self._order: defaultdict[str, dict[str, Acknowledged]] = defaultdict(dict)

    def check(self, said: Iterable[Said], killed: float) -> None:
        """Check after a kill at the moment ``killed``."""
        known = list(said)
        late = [each for each in known if isinstance(each, Asked) and each.at < killed - _SOON]
        self._compare(self.take(known), {each.session: each.count for each in late})

    def take(self, said: Iterable[Said]) -> dict[str, Acknowledged]:
        """Count the acknowledged records, and give them by session; `check_all` compares them."""
        fresh: dict[str, Acknowledged] = {}
        for each in said:
            if isinstance(each, Acknowledged):
                fresh[each.session] = self._order[each.thread][each.session] = each
        self._figures.decisions += sum(each.count for each in fresh.values())
        self._figures.ends += sum(each.ended for each in fresh.values())
        return fresh

    def check_all(self) -> None:
        """Check everything that retention has left."""
        self._compare({}, {})
        self._compare({key: each for known in self._order.values() for key, each in known.items()}, {})

    def _compare(self, verified: dict[str, Acknowledged], quiet: dict[str, int]) -> None:
        used = self._whole_bytes()
        with LedgerReader(self._ledger) as reader:
            found = {session.id: session for session in reader.sessions()}
            dropped = self._drop_missing(found, verified)
            if dropped and self._most and used < _LEAST_KEPT * self._most:
                self._figures.blame([f"retention dropped {dropped} sessions and left {used} bytes"])
            for key, each in verified.items():
                if key in found:
                    self._figures.blame(differences(reader, found[key], each, observed(each.seed)))
        for known in self._order.values():
            ended = [found[each.session] for each in known.values() if each.ended]
            self._figures.blame(f"{each.id} ended and is told as not" for each in ended if not_ended(each))
        for key, count in quiet.items():
            held = found[key].decisions if key in found else 0
            self._figures.late = max(self._figures.late, count - held)

    def _whole_bytes(self) -> int:
        """Give the bytes in use of a file, which must be whole; 0 for a database."""
        if isinstance(self._ledger, str):
            return 0
        with closing(sqlite3.connect(f"{self._ledger.absolute().as_uri()}?mode=ro", uri=True)) as database:
            told = [str(line) for (line,) in database.execute("PRAGMA integrity_check")]
            if told != ["ok"]:
                self._figures.blame([f"the ledger is damaged: {told[:3]}"])
            pages, free, size = (
                database.execute(f"PRAGMA {name}").fetchone()[0]
                for name in ("page_count", "freelist_count", "page_size")
            )
        return int((pages - free) * size)

    def _drop_missing(self, found: dict[str, SessionRecord], fresh: dict[str, Acknowledged]) -> int:
        """Forget the sessions that retention dropped, and give their number; what else is missing is lost.

        Retention drops of each client the first sessions, and none of those since the server started: they take a
        small part of the ledger's bound.
        """
        count = 0
        for known in self._order.values():
            in_turn = set(itertools.takewhile(lambda key: key not in found and key not in fresh, known))
            if self._most is None:
                in_turn = set()
            for key in [key for key in known if key not in found]:
                each = known.pop(key)
                if key in in_turn:
                    count += 1
                    self._figures.dropped += each.count
                else:
                    self._figures.blame([f"session {key} with {each.count} acknowledged decisions is lost"])
        return count


def not_ended(session: SessionRecord) -> bool:
    """Whether the ledger does not tell that a session ended by itself."""
    return session.interrupted or session.closed is None


def differences(
    reader: LedgerReader, session: SessionRecord, told: Acknowledged, rows: Sequence[Values]
) -> Iterator[str]:
    """Give the acknowledged records that a ledger lacks; ``rows`` are the session's observations."""
    try:
        batches = reader.trajectory(session).batches
    except PolicyBridgeError as error:
        yield f"session {session.id} cannot be read: {error}"
        return
    due = b"".join(row.tobytes() for row in rows[: told.count])
    if b"".join(batch.observations.tobytes() for batch in batches)[: len(due)] != due:
        yield f"session {session.id} has other observations than those that were acknowledged"
    advices = b"".join(batch.advices.tobytes() for batch in batches)[: told.count * SIGNATURE.advice_layout.size]
    if digested(advices) != told.advices:
        yield f"session {session.id} has other advices than those that were acknowledged"
    steps = [step for batch in batches for step in batch.steps.tolist()]
    if steps != list(range(1, len(steps) + 1)):
        yield f"session {session.id} has other steps than 1 to {len(steps)}"
    if told.report and (session.outcome is None or session.outcome.values.get("report", 0) < told.report):
        yield f"session {session.id} lacks its outcome {told.report}"
    if session.lost:
        yield f"session {session.id} lost {session.lost} decisions"


class RepositoryCheck:
    """Compares a policy's versions with those whose publication was acknowledged.

    Args:
        repository: the folder.
        policy: the policy's name.
        keep: number of versions that the server keeps.
        figures: are counted here.

    """

    def __init__(self, repository: Path, policy: str, keep: int, figures: Figures) -> None:
        self._repository = repository
        self._policy = policy
        self._keep = keep
        self._figures = figures
        self._digests: dict[int, str] = {}

    def check(self, address: str, said: Iterable[Said], *, restarted: bool) -> None:
        """Check a server that listens at ``address``; one that was restarted has removed unfinished publications."""
        fresh = [each for each in said if isinstance(each, Published)]
        self._figures.published += len(fresh)
        self._digests |= {each.version: each.digest for each in fresh}
        client = RepositoryClient(address)
        details = client.show(self._policy)
        listed = {each.version: each for each in details.versions}
        client.close()
        self._check_latest(said, details.summary.latest)
        for version, digest in self._digests.items():
            if version not in listed and version > max(listed, default=0) - self._keep:
                self._figures.blame([f"version {version} was published and is missing"])
            if version in listed and (listed[version].digest != digest or listed[version].error):
                self._figures.blame([f"version {version} is another one than that which was published"])
        hidden = [path.name for path in self._repository.rglob(".*") if restarted and path.is_dir()]
        self._figures.blame(f"a publication left {name}" for name in hidden if name.startswith(".publish"))

    def _check_latest(self, said: Iterable[Said], latest: int) -> None:
        """Check that `latest` is as acknowledged, or as the change would make it that was under way at the kill."""
        steps = [each for each in said if isinstance(each, Naming | Named)]
        named = [each.latest for each in steps if isinstance(each, Named)]
        self._figures.named += len(named)
        allowed = {named[-1]} if named else set()
        under_way = steps[-1].latest if steps and isinstance(steps[-1], Naming) else None
        if under_way:
            allowed.add(under_way)
        is_new = under_way == 0 and latest > max(self._digests, default=0)
        if named and not is_new and latest not in allowed:
            self._figures.blame([f"latest is {latest}, and one of {sorted(allowed)} was acknowledged or under way"])

"""The record of a session whose client decides, kept until the server has acknowledged it; see proto/SOCKET.md."""

from dataclasses import asdict
from typing import Final

import msgspec

from policybridge_serdes import PolicyReference, PolicyVersion, SessionOptions
from policybridge_serdes.interactive import end_line

MOST_RECORD: Final = 16 << 20
"""Bytes of a record; of a longer one nothing is kept."""


class Record:
    """Collects what a session has reported, as the socket's protocol sends it.

    Attributes:
        session: the session's id.
        settled: whether the server has acknowledged all of it.
        given_up: whether it was too long, or has decisions that the server made, and is not kept.

    """

    def __init__(self, session: str, policy: PolicyVersion, asked: PolicyReference, options: SessionOptions) -> None:
        self.session = session
        self.settled = True
        self.given_up = False
        self._pieces = [_first_line(session, policy, asked, options)]
        self._size = len(self._pieces[0])

    def note(self, line: bytes) -> None:
        """Keep a signature or a context, which alone needs no acknowledgement."""
        if self.given_up:
            return
        self._size += len(line)
        if self._size > MOST_RECORD:
            self.give_up()
        else:
            self._pieces.append(line)

    def add(self, lines: bytes) -> None:
        """Keep decisions or an outcome."""
        self.settled = False
        self.note(lines)

    def give_up(self) -> None:
        """Keep nothing of it."""
        self.given_up = True
        self._pieces.clear()

    def whole(self) -> bytes:
        """Give the record with its end."""
        return b"".join((*self._pieces, end_line()))


def _first_line(session: str, policy: PolicyVersion, asked: PolicyReference, options: SessionOptions) -> bytes:
    fields: dict[str, object] = {"policybridge": 1, "resume": session}
    fields |= {"policy": policy.name, "version": policy.version, "digest": policy.digest}
    alias = "" if asked.version is not None else asked.alias or "latest"
    if alias and not alias.startswith("sha256:"):
        fields["alias"] = alias
    fields |= {"options": dict(options.options), "labels": dict(options.labels)}
    if options.context:
        fields["context"] = options.context
    if options.exploration is not None:
        fields["exploration"] = asdict(options.exploration)
    return msgspec.json.encode(fields) + b"\n"

"""The server's log on standard error: lines for people, or JSON lines for programs; never a flood.

A record may carry the session that it is about: ``_LOG.warning(..., extra={"session": id})``.
"""

import logging
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

import msgspec

from policybridge_core.terminal import escaped, indented, plain
from policybridge_server.config import ServerConfig

_BURST: Final = 20
"""Records of one place in the code that are logged in one period; the others are counted."""

_PERIOD: Final = 60.0
"""Seconds."""

_SHORT: Final = 12
"""Characters of a session's id in a line for people; enough for `policybridge sessions show`."""


def start_log(config: ServerConfig, *, verbose: bool = False) -> None:
    """Write log records by the configuration; a second call changes level and format.

    Args:
        config: the server's configuration.
        verbose: log at least the level ``info``.

    """
    root = logging.getLogger()
    level = logging.getLevelNamesMapping()[config.log_level.upper()]
    root.setLevel(min(level, logging.INFO) if verbose else level)
    for handler in [each for each in root.handlers if isinstance(each, _Handler)]:
        root.removeHandler(handler)
    handler = _Handler()
    handler.setFormatter(_Json() if config.log_format == "json" else _Lines())
    handler.addFilter(Brake())
    root.addHandler(handler)


def printed(policy: str, lines: list[str]) -> None:
    """Write a policy's output in the log's format, or as lines with the policy's name if there is no log."""
    handler = next((each for each in logging.getLogger().handlers if isinstance(each, _Handler)), None)
    if handler is not None and isinstance(handler.formatter, _Json):
        text = "".join(f"{_json(_now(time.time()), 'info', line, policy=policy)}\n" for line in lines)
    else:
        text = "".join(f"{plain(f'{policy}: {line}')}\n" for line in lines)
    sys.stderr.write(text)
    sys.stderr.flush()


class _Handler(logging.Handler):
    """Writes to the present standard error, and never raises: a reader of the log may close it."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            sys.stderr.write(f"{self.format(record)}\n")
            sys.stderr.flush()
        except Exception:
            # logging's own way would write to standard error once more.
            return


class _Lines(logging.Formatter):
    """``2026-01-31T12:00:00.123Z WARNING [session] message``."""

    def format(self, record: logging.LogRecord) -> str:
        session = _session(record)
        place = f"[{session[:_SHORT]}] " if session else ""
        return indented(f"{_now(record.created)} {record.levelname} {place}{_message(record, self.formatException)}")


class _Json(logging.Formatter):
    """One object in a line: time, level, message, logger, and the session, if any."""

    def format(self, record: logging.LogRecord) -> str:
        session = _session(record)
        more = {"session": session} if session else {}
        message = _message(record, self.formatException)
        return _json(_now(record.created), record.levelname.lower(), message, logger=record.name, **more)


class Brake(logging.Filter):
    """Limits the records of each code location in a period; the next record counts those dropped.

    Args:
        clock: gives seconds.

    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        # By code location; there are some hundreds.
        self._periods: dict[tuple[str, int], list[float]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to log the record; add a note to the last one of a period, and to the first after it."""
        now = self._clock()
        period = self._periods.setdefault((record.pathname, record.lineno), [now, 0])
        begun, count = period
        if now - begun < _PERIOD:
            period[1] += 1
            if count == _BURST:
                record.msg, record.args = f"{_text(record)} (more of these are not logged for a while)", ()
            return count <= _BURST
        if count > _BURST + 1:
            left_out = int(count) - _BURST - 1
            record.msg, record.args = f"{_text(record)} ({left_out} more of these were not logged)", ()
        period[:] = [now, 1]
        return True


def _session(record: logging.LogRecord) -> str:
    return str(getattr(record, "session", ""))


def _message(record: logging.LogRecord, describe: Callable[..., str]) -> str:
    text = _text(record)
    return f"{text}\n{describe(record.exc_info)}" if record.exc_info and record.exc_info[0] else text


def _text(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception as error:
        return f"{record.msg!r} with {record.args!r}, whose message cannot be formatted: {error!r}"


def _now(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _json(moment: str, level: str, message: str, **more: str) -> str:
    # A name of a file that is no UTF-8 has lone surrogates, which JSON cannot carry.
    fields = {"time": moment, "level": level, "message": message, **more}
    clean = {name: value.encode(errors="backslashreplace").decode() for name, value in fields.items()}
    return escaped(msgspec.json.encode(clean).decode())

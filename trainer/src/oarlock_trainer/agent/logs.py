"""The agent's own log: one JSON object per line on stderr, with the pod's identity in each.

The ranks' output passes through untouched; theirs is their own format.
"""

from __future__ import annotations

import json
import logging
import sys
from typing import TYPE_CHECKING

from oarlock_trainer.runtime.clock import timestamp

if TYPE_CHECKING:
    from collections.abc import Callable

    from oarlock_trainer.runtime.assignment import Pod

_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
"""What every record has; the rest came in by `extra` and is a field of ours."""


class _JsonLines(logging.Formatter):
    def __init__(self, pod: Pod) -> None:
        super().__init__()
        self._identity = {"job": pod.job, "attempt": pod.attempt, "rank": pod.rank}

    def format(self, record: logging.LogRecord) -> str:
        line = {"time": timestamp(), "level": record.levelname.lower(), **self._identity}
        line |= {"message": record.getMessage()}
        line |= {key: value for key, value in vars(record).items() if key not in _OWN}
        if record.exc_info:
            line |= {"traceback": self.formatException(record.exc_info)}
        return json.dumps(line, ensure_ascii=False, default=str)


def set_up(pod: Pod) -> None:
    """Log everything of level info and above to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines(pod))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)


def also_to(sink: Callable[[str], None]) -> None:
    """Give each line to `sink` as well, which must neither wait nor log. Nothing is given where `set_up` was not called."""
    for handler in logging.getLogger().handlers[:1]:
        if handler.formatter:
            logging.getLogger().addHandler(_Handed(sink, handler.formatter))


class _Handed(logging.Handler):
    def __init__(self, sink: Callable[[str], None], formatter: logging.Formatter) -> None:
        super().__init__()
        self.setFormatter(formatter)
        self._sink = sink

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._sink(self.format(record))
        except Exception:  # noqa: BLE001 - as every handler: no log call raises
            self.handleError(record)

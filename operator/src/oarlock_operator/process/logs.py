"""One logging set-up for kopf, the client and us: structlog renders everything, as JSON or for a terminal.

Fields of ours: namespace, job, uid, attempt. A finished line never holds a secret: secrets only exist by reference here.
"""

from __future__ import annotations

import logging
import sys

import structlog


def set_up(*, log_format: str, level: str) -> None:
    """Configure structlog and the standard library's root logger. Called once, first thing in the process."""
    shared: list[structlog.types.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    renderer: structlog.types.Processor = (
        structlog.processors.JSONRenderer()
        if log_format == "json"
        else structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(),  # in a file they are noise
            exception_formatter=structlog.dev.plain_traceback,  # rich would colour it anyway, and tell local variables
        )
    )
    final: list[structlog.types.Processor] = [structlog.stdlib.ProcessorFormatter.remove_processors_meta]
    if log_format == "json":
        final.append(structlog.processors.format_exc_info)
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=[*final, renderer]))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # kopf tells each watch event and each reconnect at INFO; its warnings are worth reading.
    logging.getLogger("kopf").setLevel(logging.WARNING)
    logging.getLogger("aiohttp.access").setLevel(logging.WARNING)

"""Entry point of oarlock-operator: settings, logs, and what the process's end is told by."""

from __future__ import annotations

import asyncio
import sys

import structlog
from kubernetes.aio.config import ConfigException
from pydantic import ValidationError
from pydantic_settings import CliApp, SettingsError

from oarlock_operator import metrics
from oarlock_operator.process import logs
from oarlock_operator.process.keys import UnusableKeyError
from oarlock_operator.process.process import run
from oarlock_operator.process.settings import Settings

log = structlog.get_logger(__name__)


def main() -> int:
    """Entry point of oarlock-operator. 0 after a wished end, 1 after anything else, 2 for unusable settings."""
    try:
        settings = CliApp.run(Settings)
    except ValidationError as error:
        for mistake in error.errors(include_url=False):
            name = ".".join(str(part) for part in mistake["loc"])
            sys.stderr.write(f"oarlock-operator: {name}: {mistake['msg']} (see --help)\n")
        return 2
    except SettingsError as error:
        sys.stderr.write(f'oarlock-operator: {error}; a list is written as JSON, such as ["a", "b"] (see --help)\n')
        return 2
    logs.set_up(log_format=settings.log_format, level=settings.log_level)
    metrics.LEADER.set(0)
    try:
        asyncio.run(run(settings))
    except UnusableKeyError as error:
        log.error("ending", reason=str(error))  # noqa: TRY400
        return 1
    except OSError as error:
        log.error("ending", reason=str(error), hint=f"is --port {settings.port} taken? 0 takes any free one")  # noqa: TRY400 - expected, a stack says nothing
        return 1
    except ConfigException as error:
        log.error("ending", reason=str(error), hint="check --kubeconfig")  # noqa: TRY400
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

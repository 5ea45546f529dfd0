"""The log is read by people on a terminal and by programs everywhere else."""

from __future__ import annotations

import subprocess
import sys

_PROGRAM = """
import structlog
from oarlock_operator.process.logs import set_up
set_up(log_format="console", level="info")
log = structlog.get_logger()
try:
    raise ValueError("odd")
except ValueError:
    log.exception("it happened", job="flux")
"""


def test_a_console_log_that_goes_into_a_file_has_no_colours() -> None:
    written = subprocess.run([sys.executable, "-c", _PROGRAM], check=True, capture_output=True, text=True).stderr
    assert "it happened" in written
    assert "job=flux" in written
    assert "ValueError: odd" in written
    assert "\x1b" not in written

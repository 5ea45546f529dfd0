"""Ranks that say that they are ready, and end with the code in ENDS_WITH once they are asked to leave."""

from __future__ import annotations

import os
import signal
import sys


def main() -> int:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    sys.stdout.write(f"ready {os.environ['RANK']}\n")
    signal.sigwait({signal.SIGTERM})
    return int(os.environ["ENDS_WITH"])

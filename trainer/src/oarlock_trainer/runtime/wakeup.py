"""Signals as bytes in a pipe, so that one select() waits for them beside everything else."""

from __future__ import annotations

import os
import signal


def hold(*numbers: signal.Signals) -> None:
    """Keep the signals until `on` takes them. PID 1 of a container would never hear of one that came before."""
    signal.pthread_sigmask(signal.SIG_BLOCK, numbers)


def on(*numbers: signal.Signals) -> int:
    """Descriptor that becomes readable when one of the signals arrives; each byte read from it is a signal's number.

    Main thread only.
    """
    waking, wake = os.pipe()
    for descriptor in (waking, wake):
        os.set_blocking(descriptor, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    for number in numbers:
        signal.signal(number, lambda _number, _frame: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)
    return waking


def taken(descriptor: int) -> list[int]:
    """Numbers of the signals that have arrived since the last call, in order. Never blocks."""
    try:
        return list(os.read(descriptor, 4096))
    except BlockingIOError:
        return []

"""What of a text tells people why a rank ended: libraries add native stacks, advice and cheers, launchers their own end."""

from __future__ import annotations

import re

_NATIVE_STACK = re.compile(
    r"\s*^(Exception raised from |frame #\d+: |C\+\+ CapturedTraceback).*", re.DOTALL | re.MULTILINE
)
_SOURCE = re.compile(r"^\[[^\]]*\.(cc|cpp|cu|h|hpp):\d+\]\s*|^NCCL error in: \S+,\s*")
"""Where in gloo's or torch's own source it was raised."""
_GLOO_ADVICE = re.compile(r"\.?\s*This is typically caused by .*", re.DOTALL)
_NCCL_REASON = re.compile(r"^Last error:\s*(\S.*)", re.MULTILINE)
_LONGEST_REASON = 300
_EXCEPTION = re.compile(r"^(?:\[rank\d+\]:\s*)?((?:\w+\.)*(\w+(?:Error|Exception|Interrupt|Exit|Warning))(?::\s.*)?)$")
"""The last line of a traceback; torch writes the rank before it."""
_OF_LAUNCHERS = frozenset({"CalledProcessError", "ChildFailedError", "SignalException"})
"""How torchrun and accelerate end because a rank did."""


def telling(text: str) -> str:
    """The text without native stacks."""
    return _NATIVE_STACK.sub("", text).strip()


def of_lost_peer(text: str) -> str:
    """One clause for the text of an exception with which gloo, NCCL or torch's store says that the other side is gone."""
    said = telling(text)
    who = next((name for name in ("gloo", "NCCL") if name.lower() in said.lower()), "torch")
    last = _NCCL_REASON.search(said)
    first = _SOURCE.sub("", _GLOO_ADVICE.sub("", said)).partition("\n")[0].strip().rstrip(".")
    what = f"{first}; {last[1].strip()}" if last and last[1] not in first else first
    what = what[:1].lower() + what[1:] if what[1:2].islower() else what
    return f"lost connection to a peer ({who}: {what[:_LONGEST_REASON]})"


def of_output(text: str) -> str:
    """The line of a program's standard error that tells most of why it failed: its last exception, else its last line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for line in reversed(lines):
        if (found := _EXCEPTION.match(line)) and found[2] not in _OF_LAUNCHERS:
            return found[1][:_LONGEST_REASON]
    return lines[-1][:_LONGEST_REASON] if lines else ""

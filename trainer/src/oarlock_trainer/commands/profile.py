"""`oarlock-trainer profile`: the traces of an attempt's ranks as one, on the clock of rank 0."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oarlock_api.contract.exit_codes import ExitCode
from oarlock_api.contract.layout import PROFILE, PROFILE_CLOCK, PROFILE_TRACE
from oarlock_trainer.runtime.errors import ConfigurationError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator


def run(options: argparse.Namespace) -> int:
    """Join the traces; returns the exit code."""
    try:
        path = join(options.output, options.attempt)
    except ConfigurationError as error:
        sys.stderr.write(f"{error}\n")
        return int(ExitCode.CONFIGURATION)
    sys.stdout.write(f"{path}: open it at https://ui.perfetto.dev or chrome://tracing\n")
    return int(ExitCode.DONE)


def join(output: Path, attempt: int | None = None) -> Path:
    """Write <output>/profile/attempt-<a>/all.trace.json.gz, by default of the newest attempt with traces.

    Raises ConfigurationError where there is none.
    """
    place = _attempt(output, attempt)
    traces = [_Trace(path) for path in sorted(place.glob(f"rank-*.{PROFILE_TRACE}"), key=_rank)]
    start = min(one.start for one in traces)
    path = place / f"all.{PROFILE_TRACE}"
    with gzip.open(path, "wt", encoding="utf-8", compresslevel=5) as file:
        file.write(f'{{"displayTimeUnit": "ms", "baseTimeNanoseconds": {start}, "traceEvents": [')
        separator = ""
        for trace in traces:
            for event in trace.events(start):
                file.write(separator + json.dumps(event, separators=(",", ":")))
                separator = ",\n"
        file.write("]}")
    return path


class _Trace:
    """One rank's, with times in nanoseconds by rank 0's clock."""

    def __init__(self, path: Path) -> None:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            self._found: dict[str, Any] = json.load(file)
        self._rank = _rank(path)
        clock = path.with_name(path.name.replace(PROFILE_TRACE, PROFILE_CLOCK))
        ahead = json.loads(clock.read_text(encoding="utf-8"))["aheadNanoseconds"]
        self._base = int(self._found.get("baseTimeNanoseconds", 0)) - ahead
        first = min((one["ts"] for one in self._found["traceEvents"] if one.get("ph") == "X"), default=0.0)
        self.start = self._base + int(first * 1e3)

    def events(self, start: int) -> Iterator[dict[str, Any]]:
        """All events, in microseconds since `start`; a process is named by its rank first."""
        shift = (self._base - start) / 1e3
        for event in self._found["traceEvents"]:
            named = event | {"pid": f"rank {self._rank}: {event['pid']}"} if "pid" in event else dict(event)
            if "id" in named:
                named["id"] = f"{self._rank}.{named['id']}"  # arrows between two events stay within their rank
            if "ts" in named:
                named["ts"] = round(named["ts"] + shift, 3)
            yield named


def _attempt(output: Path, attempt: int | None) -> Path:
    """The folder of an attempt that has traces."""
    places = (
        [output / PROFILE / f"attempt-{attempt}"]
        if attempt
        else sorted((output / PROFILE).glob("attempt-*"), key=lambda place: int(place.name.partition("-")[2]))
    )
    for place in reversed(places):
        if any(place.glob(f"rank-*.{PROFILE_TRACE}")):
            return place
    raise ConfigurationError(
        f"{output / PROFILE} holds no traces{f' of attempt {attempt}' if attempt else ''}: set spec.training.profile, such "
        "as {steps: 5}, and name the output of a job that has done these steps"
    )


def _rank(path: Path) -> int:
    return int(path.name.removeprefix("rank-").partition(".")[0])

"""The command `oarlock` as people have it: a program, its exit code, and what it prints on a pipe or on a terminal."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oarlock.cli.main import run
from oarlock_local import patience

PROGRAMS = Path(sys.executable).parent
_TYPES: dict[str, type | tuple[type, ...]] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "null": type(None),
    "object": dict,
    "array": list,
}
_KEYWORDS = {"$schema", "$defs", "title", "description", "type", "const", "required", "properties", "items"}


@dataclass(frozen=True, slots=True)
class Ended:
    """How a call ended."""

    out: str
    err: str


@dataclass(frozen=True, slots=True)
class Command:
    """`environment` leads to a cluster, and so does this process's own."""

    environment: Mapping[str, str]

    def __call__(self, *arguments: str, code: int = 0) -> Ended:
        """Run a verb to its end, which is that exit code; whatever has failed says so in its last line alone.

        Within this process: beside a job that takes both cores a program's start takes seconds.
        """
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            ended = run(list(arguments))
        said = Ended(out.getvalue(), err.getvalue())
        assert ended == code, (arguments, ended, said.out[-1000:], said.err)
        assert not code or said.err.rpartition("oarlock: ")[2].count("\n") == 1, said
        return said

    def json(self, *arguments: str) -> Any:
        """What it prints as JSON."""
        return json.loads(self(*arguments, "-o", "json").out)

    @contextmanager
    def started(self, *arguments: str, **how: Any) -> Iterator[subprocess.Popen[str]]:
        """A process of it, which is gone after the block."""
        process = subprocess.Popen(
            [PROGRAMS / "oarlock", *arguments], env=self.environment, text=True, **{"stdout": subprocess.PIPE, **how}
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    @contextmanager
    def on_a_terminal(self, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], Callable[..., list[str]]]]:
        """A process whose output is a terminal, and what waits for so many different matches of a pattern there."""
        ours, theirs = pty.openpty()
        printed = ""

        def matches(pattern: str, count: int) -> list[str]:
            nonlocal printed
            deadline = time.monotonic() + patience.SECONDS
            while len(found := list(dict.fromkeys(re.findall(pattern, printed)))) < count:
                assert select.select([ours], [], [], max(0, deadline - time.monotonic()))[0], printed
                printed += os.read(ours, 65536).decode(errors="replace")
            return found

        try:
            with self.started(*arguments, stdin=theirs, stdout=theirs, stderr=theirs) as process:
                yield process, matches
        finally:
            os.close(ours)
            os.close(theirs)


class Followed:
    """`oarlock logs JOB -f -o jsonl` beside a test."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._lines: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def to_its_end(self) -> list[dict[str, Any]]:
        """All lines, once the job is over."""
        self._reader.join(timeout=patience.SECONDS)
        assert self._process.wait(timeout=patience.SECONDS) == 0
        return self._lines

    def _read(self) -> None:
        assert self._process.stdout
        self._lines.extend(json.loads(line) for line in self._process.stdout)


def breaks(value: Any, schema: Mapping[str, Any], *, of: Mapping[str, Any], at: str = "$") -> list[str]:
    """Where a value does not keep to a part of the JSON Schema `of`: the keywords that our schemas have."""
    if "$ref" in schema:
        return breaks(value, of["$defs"][schema["$ref"].rpartition("/")[2]], of=of, at=at)
    if "oneOf" in schema:
        tried = [breaks(value, one, of=of, at=at) for one in schema["oneOf"]]
        return [] if sum(not found for found in tried) == 1 else min(tried, key=len) or [f"{at} is several things"]
    assert schema.keys() <= _KEYWORDS, schema
    if "const" in schema:
        return [] if value == schema["const"] else [f"{at} is {value!r}"]
    wanted = schema.get("type", list(_TYPES))
    kinds = [wanted] if isinstance(wanted, str) else wanted
    fits = any(isinstance(value, _TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool)) for kind in kinds)
    if not fits:
        return [f"{at} is {value!r}, and no {' or '.join(kinds)}"]
    found: list[str] = []
    if isinstance(value, dict):
        known = schema.get("properties", {})
        found += [f"{at} has no {name}" for name in schema.get("required", ()) if name not in value]
        found += [f"{at}.{name} is not in the schema" for name in value if known and name not in known]
        for name in value.keys() & known.keys():
            found += breaks(value[name], known[name], of=of, at=f"{at}.{name}")
    if isinstance(value, list) and "items" in schema:
        for number, one in enumerate(value):
            found += breaks(one, schema["items"], of=of, at=f"{at}[{number}]")
    return found

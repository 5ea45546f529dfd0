"""All that a GPU can tell, in slices of at most eight minutes, what is worth most first: `make gpu-day`.

    make gpu-day                                  in the project's own environment
    make gpu-day PYTHON=python3 WHEELS=wheels     with a Python and a torch that are there already; no `make setup`
    make gpu-day MINUTES=9                        no longer than this; the next call goes on where this one ended

PYTHON is 3.11 or later; its versions are told beside those of uv.lock. What it lacks is taken from the wheels of a folder
(bench/gpu_wheels.py fills one, for a machine without a network), and a slice that still lacks something is skipped with its
name. Each slice has a bound, at which it is ended; what it had measured by then counts, and the next call goes on with it,
after those that never had a turn. One that the end of a call cut short before its bound keeps its place. Everything lies in
bench/results/gpu/: the page is gpu-day.md, written anew after each slice. What another GPU or another torch found is put
aside, into a folder earlier-N. To go on on another machine, bring the .json files of that folder there.

    python bench/gpu_day.py --again block         this slice alone, anew; --only NAME ...: of what is left; --page: the page

Needs nothing but Python's standard library here: slices are processes of their own.
"""

from __future__ import annotations

import sys

if sys.version_info < (3, 11):  # noqa: UP036 - before what it lacks is imported; PYTHON= may name any
    sys.exit(
        f"make gpu-day needs Python 3.11 or later, and {sys.executable} is {sys.version.split()[0]}: name another PYTHON="
    )

import argparse
import fcntl
import signal
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any

import gpu_page
import gpu_process
import gpu_results
from gpu_python import DISTRIBUTIONS, GPUS, ROOT, TOLD, installed, locked, surroundings
from gpu_slices import SLICES, Slice, named, others

FOLDER = ROOT / "bench" / "results" / "gpu"
_KEPT_WORDS = 300
"""Characters of a slice's last words."""
_LEAST_SECONDS = 30.0
"""Less than this is no turn: torch alone takes a good part of it to be imported."""
_DECIDES = ("torch", GPUS)
"""What figures of two calls must have in common to stand on one page."""


class State(StrEnum):
    """How a slice stands."""

    DONE = "done"
    FAILED = "failed"
    GOES_ON = "goes on at the next call"
    CUT_SHORT = "goes on at the next call, in its place"
    """The call's time was over before the slice's."""
    SKIPPED = "skipped"
    """It lacks a package, which may have come by the next call."""


_NAMES = [each.name for each in SLICES]


def main(arguments: Sequence[str]) -> int:
    """Do the slices that are left; 1 where one failed."""
    options = _options(arguments)
    for number in (signal.SIGTERM, signal.SIGHUP):  # as Ctrl-C: what was begun is ended and noted
        if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup leaves it
            signal.signal(number, signal.default_int_handler)
    try:
        with alone(FOLDER):
            return _go(options, Day(FOLDER))
    except KeyboardInterrupt:
        print("\ninterrupted: the next call goes on from here")
        return 128 + signal.SIGINT


def _go(options: argparse.Namespace, day: Day) -> int:
    if not options.page:
        end = time.monotonic() + options.minutes * 60
        if left := gpu_process.end_marked(FOLDER):
            print(f"an earlier call was killed: its processes {', '.join(map(str, left))} are ended now")
        environment = surroundings(options.wheels, FOLDER / "site")
        versions = installed(environment)
        if "torch" not in versions:
            sys.exit(f"{sys.executable} has no torch: name a Python that has one, make gpu-day PYTHON=...")
        day.note_versions(versions)
        day.forget([each for each in SLICES if each.name in options.again])
        wanted = [each for each in SLICES if each.name in (options.only or options.again or _NAMES)]
        began = False
        for each in day.left(wanted):
            seconds = min(each.minutes * 60, end - time.monotonic())
            if seconds < _LEAST_SECONDS:
                print(f"== less than {_LEAST_SECONDS:.0f} s are left: {each.name} and what follows are the next call's")
                break
            whole = not began or seconds == each.minutes * 60
            began |= day.do(each, versions, environment, seconds, whole=whole) is not State.SKIPPED
            day.write_page()
    print(day.write_page())
    return 1 if any(one["state"] == State.FAILED for one in day.slices.values()) else 0


class Day:
    """How each slice ended, in a folder with what they found. Its files are whole at any moment."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._path = folder, folder / "gpu-day.json"
        kept = gpu_results.read(self._path)
        self.slices: dict[str, dict[str, Any]] = kept.get("slices", {})
        self.versions: dict[str, list[str]] = kept.get("versions", {})

    def forget(self, slices: Iterable[Slice]) -> None:
        """These are to be done anew: what they found goes, and of a file that several share what is theirs."""
        for each in slices:
            self.slices.pop(each.name, None)
            path = self._folder / each.result
            found = gpu_results.read(path)
            if "results" in found:
                found["results"] = {name: one for name, one in found["results"].items() if not _finds(each, name)}
                gpu_results.write(path, found)
            else:
                path.unlink(missing_ok=True)
        self._write()

    def note_versions(self, versions: Mapping[str, str]) -> None:
        """What is installed, beside what uv.lock has; told where they differ. Begins anew on another GPU or torch."""
        known = {name: self.versions[name][0] for name in _DECIDES if name in self.versions}
        others = [
            name for name in _DECIDES if known.get(name, versions.get(name)) != versions.get(name, known.get(name))
        ]
        if others:
            was = ", ".join(f"{name} {known[name]}" for name in others)
            print(
                f"what is in {self._folder} is of {was}: it is in {self._put_aside().name} now, and the day begins anew"
            )
        lock_of = {name: one.get("version", "") for name, one in locked().items()}
        both = {
            name: (versions.get(name, "not there"), lock_of.get(DISTRIBUTIONS.get(name, name), "")) for name in TOLD
        }
        for name, (here, lock) in both.items():
            if here != lock:
                print(f"{name}: {here}; uv.lock has {lock}")
        told = {name: [versions[name], ""] for name in ("Python", GPUS) if name in versions}
        if not others and GPUS in self.versions:  # a call that sees no GPU says nothing of what is here
            told.setdefault(GPUS, self.versions[GPUS])
        self.versions = {**told, **{name: list(pair) for name, pair in both.items()}}
        self._write()

    def left(self, wanted: Sequence[Slice]) -> list[Slice]:
        """Those that never had a turn of their whole length, then those that came to no end in it, then those that failed.

        Each in the order of their worth. One whose file is gone had no turn.
        """
        states = {
            each.name: self.slices.get(each.name, {}).get("state")
            for each in wanted
            if (self._folder / each.result).exists() or self.slices.get(each.name, {}).get("state") != State.DONE
        }
        new = [each for each in wanted if states.get(each.name) in (None, State.SKIPPED, State.CUT_SHORT)]
        again = (State.GOES_ON, State.FAILED)
        return new + [each for state in again for each in wanted if states.get(each.name) == state]

    def do(
        self,
        each: Slice,
        versions: Mapping[str, str],
        environment: Mapping[str, str],
        seconds: float,
        *,
        whole: bool = True,
    ) -> State:
        """Run a slice for so many seconds at most, and note how it ended. `whole`: more it will not get in another call."""
        if lacking := [DISTRIBUTIONS.get(name, name) for name in each.needs if name not in versions]:
            why = f"not installed: {', '.join(lacking)}"
            if self.slices.get(each.name, {}).get("state", State.SKIPPED) == State.SKIPPED:
                return self._note(each, State.SKIPPED, 0.0, why)
            print(f"== {each.name}: {why}; what it found before stays")
            return State.SKIPPED
        print(f"== {each.name}: {each.asks} (at most {seconds / 60:.1f} min)", flush=True)
        log = self._folder / f"{each.name}.log"
        before = log.stat().st_size if log.exists() else 0
        script, *arguments = each.program
        command = [sys.executable, str(ROOT / "bench" / script), *arguments]
        command += ["--result", str(self._folder / each.result)]
        began = time.monotonic()
        try:
            code = gpu_process.run(
                command, folder=self._folder, log=log, environment=environment, seconds=seconds, directory=ROOT
            )
        except KeyboardInterrupt:
            self._note(each, State.CUT_SHORT, time.monotonic() - began, "interrupted")
            self.write_page()
            raise
        took = time.monotonic() - began
        if code is None:
            state = State.GOES_ON if whole else State.CUT_SHORT
            return self._note(each, state, took, f"ended at its bound of {seconds / 60:.1f} min")
        state = State.FAILED if code else State.DONE
        return self._note(each, state, took, _last_line(log, before) or (f"ended with {code}" if code else ""))

    def write_page(self) -> Path:
        """The page of all that is known by now."""
        found = {
            name.removeprefix("gpu-").removesuffix(".json"): gpu_results.read(self._folder / name)
            for name in {each.result for each in SLICES}
        }
        asked = [(each.name, each.asks, each.minutes) for each in SLICES]
        page = self._folder / "gpu-day.md"
        gpu_results.write_text(page, gpu_page.page(asked, self.slices, self.versions, found))
        return page

    def _note(self, each: Slice, state: State, seconds: float, why: str) -> State:
        self.slices[each.name] = {"state": state, "seconds": round(seconds, 1), "why": why}
        print(f"== {each.name}: {state}{f': {why}' if why else ''} ({seconds:.0f} s)", flush=True)
        self._write()
        return state

    def _put_aside(self) -> Path:
        number = 1 + sum(1 for _ in self._folder.glob("earlier-*"))
        aside = self._folder / f"earlier-{number}"
        aside.mkdir()
        for path in [path for path in self._folder.iterdir() if path.suffix in (".json", ".log", ".md")]:
            path.replace(aside / path.name)
        self.slices = {}
        return aside

    def _write(self) -> None:
        gpu_results.write(self._path, {"slices": self.slices, "versions": self.versions})


def _finds(each: Slice, name: str) -> bool:
    """Whether a result of this name, in the file that a slice shares with others, is its own."""
    return name in named(each) if named(each) else name not in others(each)


def _last_line(log: Path, since: int) -> str:
    with log.open("rb") as file:
        file.seek(since)
        lines = [line for line in file.read().decode(errors="replace").splitlines() if line.strip()]
    return lines[-1].strip()[:_KEPT_WORDS] if lines else ""


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Nobody else's slices beside ours: figures of two would be wrong without a word. Ends this program otherwise."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / "lock").open("ab")
    except OSError as error:
        sys.exit(f"make gpu-day can't write into {folder} ({error}): take a copy of the checkout that it may write to")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.exit("another `make gpu-day` runs in this checkout: wait for its end, or end it")
        yield


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=24 * 60.0, help="do no more after so many")
    parser.add_argument("--wheels", type=Path, help="folder with wheels of what this Python lacks")
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument("--only", nargs="+", choices=_NAMES, metavar="SLICE")
    chosen.add_argument("--again", nargs="+", choices=_NAMES, default=[], metavar="SLICE")
    chosen.add_argument("--page", action="store_true", help="measure nothing")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

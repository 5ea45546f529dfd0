"""Logs: the newest lines, each with its time, attempt and rank; what went before them, and what to choose from."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, timedelta
from functools import lru_cache
from urllib.parse import quote, urlencode

from oarlock.clock import parsed
from oarlock.logs import NOTE, LogLine
from oarlock.readable_log import Readable, readable
from oarlock.report.markup import Html, element, joined, with_code
from oarlock.report.words import when
from oarlock.web.ask import Region, View
from oarlock.web.tails import BLOCK_LINES, MOST_BLOCKS, Block, Seen
from oarlock_api.contract.ranges import as_ranges

MOST_PODS = 16
"""Whose logs are read at once: each is a connection to the API server."""
MOST_SEARCHED = 20_000
"""Lines of each pod that are read where a text, or what came before a time, is looked for. Few of them are kept."""
PODS = "0, 3, 8-11"
AFTER = timedelta(minutes=1)
"""So much of a log is shown after a fault: what the agent and the other processes said of it."""
FIRST = frozenset({0})
"""The pod of rank 0, which tells for all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Whose lines, and which. `attempt` None: those that have pods, and all that follow. `still`: as it is now, not live.

    `until`: no later lines; RFC 3339 in UTC. `raw`: the lines as they were printed, and not in words.
    """

    namespace: str
    job: str
    pods: frozenset[int] = FIRST
    attempt: int | None = None
    find: str = ""
    until: str = ""
    kept: bool = False
    still: bool = False
    raw: bool = False


def parse_pods(given: str, *, nodes: int) -> tuple[frozenset[int], str]:
    """Pods as people write them, and what is said where not all of them are meant. Empty: the first."""
    if given.strip().lower() == "all":
        given = f"0-{max(nodes - 1, 0)}"
    found: set[int] = set()
    for piece in filter(None, given.replace(",", " ").split()):
        first, _, last = piece.partition("-")
        if not (_is_number(first) and _is_number(last or first)):
            return FIRST, f"{piece[:40]!r} is no pod: write their numbers as in {PODS}, or all. This is pod 0."
        low, high = sorted((int(first), int(last or first)))
        found |= set(range(low, min(high, low + MOST_PODS) + 1))
    chosen = sorted(pod for pod in found if not nodes or pod < nodes)
    if found and not chosen:
        return FIRST, f"The job has pods 0 to {nodes - 1:,}. This is pod 0."
    if len(chosen) > MOST_PODS:
        return frozenset(chosen[:MOST_PODS]), f"{MOST_PODS} pods are read at once: these are the first of them."
    return frozenset(chosen or FIRST), ""


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 7


def told(pods: frozenset[int]) -> str:
    """As people write them: 0-3, 8."""
    return as_ranges(pods, separator=", ")


def logs(
    choice: Choice,
    seen: Seen,
    *,
    nodes: int = 0,
    gpus: int = 0,
    attempts: int = 0,
    words: str = "",
    other: bool = False,
) -> View:
    """The whole view. `nodes` and `attempts`: how many the job has, 0 where nobody knows; `words` are said above the lines.

    `gpus`: of a node. `other`: whether there are both, lines of pods and kept ones.
    """
    who = Who(attempt=choice.attempt is None and attempts != 1, pod=nodes != 1)
    state = Region("log-state", {"log-told": _state(choice, seen)})
    lines = Region(
        "log",
        {f"log-{block.number}": _block(block, who, raw=choice.raw) for block in seen.blocks},
    )
    box = element("div", lines.html(), class_="log", role="log", aria_live="off", tabindex="0", aria_label="Lines")
    where = f"/jobs/{quote(choice.namespace)}/{quote(choice.job)}"
    title = f"Logs of {choice.job}"
    body = joined(
        element("h1", "Logs of ", element("a", choice.job, href=where)),
        _form(choice, nodes=nodes, attempts=attempts),
        element("p", with_code(words), class_="dim") if words else None,
        _about(choice.pods, gpus if nodes > 1 else 0),
        _bound(choice) if choice.until else None,
        _others(choice, kept=other),
        state.html(),
        box,
    )
    return View(title=title, body=body, regions=() if choice.still else (state, lines))


def _bound(choice: Choice) -> Html:
    end = element("time", when(choice.until), datetime=choice.until)
    return element("p", "Lines until ", end, " (UTC). ", element("a", "All of them", href=address(choice, until=False)))


def _about(pods: frozenset[int], gpus: int) -> Html:
    """Which times these are, and the ranks of the pods where they have several."""
    if gpus < 2:
        return element("p", "Times are UTC.", class_="dim")
    ranks = told(frozenset(pod * gpus + place for pod in pods for place in range(gpus)))
    who = f"Pod {told(pods)} runs" if len(pods) == 1 else f"Pods {told(pods)} run"
    return element("p", f"{who} ranks {ranks}. Times are UTC.", class_="dim")


def _others(choice: Choice, *, kept: bool) -> Html:
    """The ways to see other lines, or these otherwise. `kept`: whether there are both, lines of pods and kept ones."""
    turns = [("In words" if choice.raw else "As printed (JSON)", address(choice, raw=not choice.raw))]
    if kept:
        words = "Live, from the pods" if choice.kept else "What the output has kept"
        turns.append((words, address(choice, kept=not choice.kept)))
    return element("p", *(element("a", words, href=href) for words, href in turns), class_="way")


def _state(choice: Choice, seen: Seen) -> Html:
    some = has_lines(seen)
    parts = []
    if seen.before:
        parts.append(f"{seen.before:,} lines before these are not shown: {BLOCK_LINES * MOST_BLOCKS:,} are kept here.")
    if seen.trouble:
        parts.append(seen.trouble)
    elif choice.until and not some and not seen.empty:
        parts.append(_none_until(choice))
    elif seen.over:
        parts.append(
            "This is the end." if some else "There is nothing to read." if seen.empty else "No line has this text."
        )
    elif not some:
        parts.append("Nothing was printed yet.")
    if choice.still:
        turn = element("a", "Follow", href=address(choice, still=False), id="log-follow")
    elif not seen.over:
        turn = element("a", "Pause", href=address(choice, still=True), id="log-pause")
    else:
        turn = None
    return element("p", " ".join(parts), " " if parts and turn else None, turn, id="log-told", class_="dim")


def has_lines(seen: Seen) -> bool:
    """Whether a line of a pod is to be seen, or was."""
    return bool(seen.before) or any(line.kind != NOTE for block in seen.blocks for line in block.lines)


def _none_until(choice: Choice) -> str:
    """A fault's log may be far behind the newest lines of a pod that goes on."""
    which = "None of the lines" if choice.kept else f"None of the newest {MOST_SEARCHED:,} lines of the pod"
    which = which if len(choice.pods) == 1 else which.replace("the pod", "each pod")
    return f"{which} is from before that time{' and has this text' if choice.find else ''}."


def address_of(namespace: str, job: str, attempt: int, *, pod: int | None = None, time: str = "") -> str:
    """The log of an attempt: of that pod, until a minute after that time, where they are known."""
    until = to_second(time, later=AFTER)
    pods = frozenset({pod}) if pod is not None else FIRST
    return address(Choice(namespace=namespace, job=job, pods=pods, attempt=attempt, until=until))


def to_second(time: str, *, later: timedelta = timedelta()) -> str:
    """A time in UTC without its fraction; empty where it is none."""
    at = parsed(time[:40])
    try:
        return (at.astimezone(UTC) + later).strftime("%Y-%m-%dT%H:%M:%SZ") if at else ""
    except OverflowError:
        return ""


def address(choice: Choice, **other: bool) -> str:
    """Where a choice is shown. `other`: still, kept or raw, where that is to be another; `until` for no such bound."""
    query = {
        "pods": told(choice.pods) if choice.pods != FIRST else "",
        "attempt": str(choice.attempt or ""),
        "find": choice.find,
        "until": "" if "until" in other else choice.until,
        "kept": "1" if other.get("kept", choice.kept) else "",
        "still": "1" if other.get("still", choice.still) else "",
        "raw": "1" if other.get("raw", choice.raw) else "",
    }
    given = urlencode({name: value for name, value in query.items() if value})
    return f"/jobs/{quote(choice.namespace)}/{quote(choice.job)}/logs" + (f"?{given}" if given else "")


def _form(choice: Choice, *, nodes: int, attempts: int) -> Html:
    whole = f"0 to {nodes - 1:,}; " if nodes > 1 else ""
    pods = element(
        "input",
        type="text",
        name="pods",
        value=told(choice.pods),
        size=10,
        maxlength=200,
        title=f"{whole}at most {MOST_PODS} at once, as in {PODS}",
    )
    attempt = element(
        "input",
        type="number",
        name="attempt",
        value=str(choice.attempt or ""),
        min="1",
        max=str(attempts) if attempts else None,
        placeholder="all",
        title="Of this attempt alone; empty: what has pods now, and all that follow",
    )
    return element(
        "form",
        element("label", "Pods ", pods) if nodes != 1 else None,
        element("label", "Attempt ", attempt) if attempts != 1 or choice.attempt else None,
        element("label", "Find ", element("input", type="search", name="find", value=choice.find, maxlength=200)),
        element("input", type="hidden", name="until", value=choice.until) if choice.until else None,
        element("input", type="hidden", name="kept", value="1") if choice.kept else None,
        element("input", type="hidden", name="raw", value="1") if choice.raw else None,
        element("button", "Show"),
        class_="filter by-button",  # not at each letter: an answer opens connections
        role="search",
    )


@dataclass(frozen=True, slots=True)
class Who:
    """What is said of whose line it is: what all lines have in common is not."""

    attempt: bool
    pod: bool


@lru_cache(maxsize=512)
def _block(block: Block, who: Who, *, raw: bool) -> Html:
    return element("div", *(_line(one, who, raw=raw) for one in block.lines), id=f"log-{block.number}")


def _line(one: LogLine, who: Who, *, raw: bool) -> Html:
    if one.kind == NOTE:
        return element("p", f"\u2014 {one.text}", class_="note")
    found = Readable(one.text, time=one.time) if raw else readable(one)
    parts = [f"attempt {one.attempt}"] if who.attempt and one.attempt is not None else []
    parts += [f"pod {one.rank}"] if who.pod and one.rank is not None else []
    return element(
        "p",
        element("time", found.clock, datetime=found.time, title=f"{found.time[:10]}, UTC") if found.time else None,
        element("span", ", ".join(parts), class_="who") if parts else None,
        " " if parts else None,
        element("strong", str(found.level)) if found.level else None,
        " " if found.level else None,
        found.text,
        class_=found.level.lower() or None,
    )

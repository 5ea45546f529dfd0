"""Logs: the newest lines, each with its time, attempt and rank; what went before them, and what to choose from."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import quote, urlencode

from oarlock.logs import NOTE, LogLine
from oarlock.readable_log import Readable, readable
from oarlock.report.markup import Html, element, joined, with_code
from oarlock.web.ask import Region, View
from oarlock.web.tails import BLOCK_LINES, MOST_BLOCKS, Block, Seen

MOST_RANKS = 16
"""Whose logs are read at once: each is a connection to the API server."""
RANKS = "0, 3, 8-11"


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Whose lines, and which. `attempt` None: those that have pods, and all that follow. `still`: as it is now, not live.

    `raw`: the lines as they were printed, and not in words.
    """

    namespace: str
    job: str
    ranks: frozenset[int] = frozenset({0})
    attempt: int | None = None
    find: str = ""
    kept: bool = False
    still: bool = False
    raw: bool = False


def parse_ranks(given: str, *, nodes: int) -> tuple[frozenset[int], str]:
    """Ranks as people write them, and what is said where not all of them are meant. Empty: rank 0, which tells for all."""
    if given.strip().lower() == "all":
        given = f"0-{max(nodes - 1, 0)}"
    found: set[int] = set()
    for piece in filter(None, given.replace(",", " ").split()):
        first, _, last = piece.partition("-")
        if not (_is_rank(first) and _is_rank(last or first)):
            return frozenset({0}), f"{piece[:40]!r} is no rank: write them as in {RANKS}, or all. This is rank 0."
        low, high = sorted((int(first), int(last or first)))
        found |= set(range(low, min(high, low + MOST_RANKS) + 1))
    chosen = sorted(rank for rank in found if not nodes or rank < nodes)
    if found and not chosen:
        return frozenset({0}), f"The job has ranks 0 to {nodes - 1:,}. This is rank 0."
    if len(chosen) > MOST_RANKS:
        return frozenset(chosen[:MOST_RANKS]), f"{MOST_RANKS} ranks are read at once: these are the first of them."
    return frozenset(chosen or {0}), ""


def _is_rank(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 7


def told(ranks: frozenset[int]) -> str:
    """As people write them: 0-3, 8."""
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def logs(
    choice: Choice, seen: Seen, *, nodes: int = 0, attempts: int = 0, words: str = "", other: bool = False
) -> View:
    """The whole view. `nodes` and `attempts`: how many the job has, 0 where nobody knows; `words` are said above the lines.

    `other`: whether there are both, lines of pods and kept ones.
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
        _others(choice, kept=other),
        state.html(),
        box,
    )
    return View(title=title, body=body, regions=() if choice.still else (state, lines))


def _others(choice: Choice, *, kept: bool) -> Html:
    """The ways to see other lines, or these otherwise. `kept`: whether there are both, lines of pods and kept ones."""
    turns = [("In words" if choice.raw else "As printed (JSON)", address(choice, raw=not choice.raw))]
    if kept:
        words = "Live, from the pods" if choice.kept else "What the output has kept"
        turns.append((words, address(choice, kept=not choice.kept)))
    return element("p", *(element("a", words, href=href) for words, href in turns), class_="way")


def _state(choice: Choice, seen: Seen) -> Html:
    count = seen.before + sum(len(block.lines) for block in seen.blocks)
    parts = []
    if seen.before:
        parts.append(f"{seen.before:,} lines before these are not shown: {BLOCK_LINES * MOST_BLOCKS:,} are kept here.")
    if seen.trouble:
        parts.append(seen.trouble)
    elif seen.over:
        parts.append("This is the end." if count else "There is nothing to read.")
    elif not count:
        parts.append("Nothing was printed yet.")
    if choice.still:
        turn = element("a", "Follow", href=address(choice, still=False), id="log-follow")
    elif not seen.over:
        turn = element("a", "Pause", href=address(choice, still=True), id="log-pause")
    else:
        turn = None
    return element("p", " ".join(parts), " " if parts and turn else None, turn, id="log-told", class_="dim")


def address(choice: Choice, **other: bool) -> str:
    """Where a choice is shown. `other`: still, kept or raw, where that is to be another."""
    query = {
        "ranks": told(choice.ranks) if choice.ranks != frozenset({0}) else "",
        "attempt": str(choice.attempt or ""),
        "find": choice.find,
        "kept": "1" if other.get("kept", choice.kept) else "",
        "still": "1" if other.get("still", choice.still) else "",
        "raw": "1" if other.get("raw", choice.raw) else "",
    }
    given = urlencode({name: value for name, value in query.items() if value})
    return f"/jobs/{quote(choice.namespace)}/{quote(choice.job)}/logs" + (f"?{given}" if given else "")


def _form(choice: Choice, *, nodes: int, attempts: int) -> Html:
    whole = f"0 to {nodes - 1:,}; " if nodes > 1 else ""
    ranks = element(
        "input",
        type="text",
        name="ranks",
        value=told(choice.ranks),
        size=10,
        maxlength=200,
        title=f"{whole}at most {MOST_RANKS} at once, as in {RANKS}",
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
        element("label", "Ranks ", ranks) if nodes != 1 else None,
        element("label", "Attempt ", attempt) if attempts != 1 or choice.attempt else None,
        element("label", "Find ", element("input", type="search", name="find", value=choice.find, maxlength=200)),
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

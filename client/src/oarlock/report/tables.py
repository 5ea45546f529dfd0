"""What is told in words: attempts, faults with their evidence and what to do, cordoned nodes, and what happened when."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from oarlock import in_words
from oarlock.explain.rounds import went_on
from oarlock.report.links import Links
from oarlock.report.markup import Child, Html, cut, element, joined
from oarlock.report.parts import at, filled, row, section, table
from oarlock.report.words import DASH, duration, some, whole
from oarlock.story import Attempt, Cordon, Moment, Story, Trouble, Unknown

MOST_ATTEMPTS = 50
MOST_VICTIMS, MOST_VICTIMS_OF_ONE = 6, 100
"""Of an attempt, beside its root cause; and of one that is shown alone."""
MOST_ROUNDS, MOST_ROUNDS_OF_ONE = 10, 100
"""The same of rounds that ended within it, the newest."""
MOST_EVIDENCE = 8
MOST_CORDONS = 100
FIRST_MOMENTS, LAST_MOMENTS = 20, 180
_LONGEST = 1500
ATTEMPT_COLUMNS = (
    "Attempt", "Started (UTC)", "Why it started", "First step", "Ended", "Why it ended", "From step", "Steps done again",
    "Rounds", "Nodes", "Decision",
)  # fmt: skip
"""`oarlock get` has some of them, by the same names."""
_FAULT = ("Attempt", "Time (UTC)", "Cause", "Where", "What was seen")
_CORDON = ("Node", "Cordoned (UTC)", "Attempt", "GPU", "Why", "Uncordoned (UTC)")
_MOMENT = ("Time (UTC)", "What", "In words")


def attempts(story: Story, links: Links | None = None) -> Html | None:
    """The table of attempts, each with a link to its log."""
    links = links or Links()
    if not story.attempts:
        return None
    shown = story.attempts[-MOST_ATTEMPTS:]
    names, told = filled(ATTEMPT_COLUMNS, [_attempt(one, links) for one in shown])
    rows = (row(names, cells, id=f"attempt-{one.number}") for one, cells in zip(shown, told, strict=True))
    head = links.word("attempt", "Attempts")
    return section("Attempts", table(names, rows), _earlier(story), head=head)


def _attempt(one: Attempt, links: Links) -> list[Child]:
    stages = ", ".join(
        f"{in_words.stage(stage.name)} {duration(stage.seconds)}" for stage in one.stages if stage.seconds >= 0.05
    )
    first = element("span", at(one.first_step_time), title=stages) if stages else at(one.first_step_time)
    ended = one.end_reason or DASH
    nodes = some(one.node_names or [place.node for place in one.places])
    nodes += f"; before: {some(one.replaced_node_names)}" if one.replaced_node_names else ""
    number = _logged(str(one.number), f"attempt {one.number}", links.log(one.number))
    return [
        number, at(one.start_time), cut(one.reason, 200) or DASH, first, at(one.end_time), cut(ended, 200),
        whole(one.resumed_from_step), whole(one.lost_steps), _ended_rounds(one), links.said(cut(nodes, 600)),
        links.said(cut(one.decision, 600)) or DASH,
    ]  # fmt: skip


def _ended_rounds(one: Attempt) -> str:
    """How many ended within it, and what that cost."""
    if not one.rounds:
        return DASH
    steps, down = sum(each.lost_steps or 0 for each in one.rounds), sum(each.down_seconds or 0 for each in one.rounds)
    return f"{len(one.rounds)} ended: {whole(steps)} steps done again, {duration(down)} down"


def _earlier(story: Story) -> Html | None:
    left_out = len(story.attempts) - MOST_ATTEMPTS
    return element("p", f"{left_out:,} earlier attempts are left out.", class_="dim") if left_out > 0 else None


def _logged(words: Child, of: str, address: str | None) -> Child:
    if address is None:
        return words
    return joined(words, " ", element("a", "Log", href=address, aria_label=f"Log of {of}"))


def faults(story: Story, *, only: int | None = None, links: Links | None = None) -> Html:
    """Each attempt's root cause with what it rests on and what to do about it, then who went down with it, then its rounds.

    `only`: of that attempt, with more of those who went down. Each has a link to its log: of those who went down
    only where one attempt is shown, for nobody tabs through hundreds.
    """
    links = links or Links()
    rows: list[Html] = []
    most = MOST_VICTIMS if only is None else MOST_VICTIMS_OF_ONE
    for one in reversed(with_faults(story, only=only)):
        rows.extend(row(_FAULT, _root(one, fault, links), id=f"fault-{one.number}") for fault in one.faults[:1])
        victims = one.faults[1:]
        rows.extend(row(_FAULT, _victim(one, fault, links, logged=only is not None)) for fault in victims[:most])
        if len(victims) > most:
            rows.append(
                row(_FAULT, [str(one.number), "", "", "", f"and {len(victims) - most:,} more pods of this attempt"])
            )
        rows.extend(_rounds(one, links, MOST_ROUNDS if only is None else MOST_ROUNDS_OF_ONE))
    if not rows:
        return section("Faults", element("p", "None is known.", class_="dim"))
    return section("Faults", table(_FAULT, rows))


def with_faults(story: Story, *, only: int | None = None) -> list[Attempt]:
    """The attempts whose faults are told."""
    if only is None:
        return list(story.attempts[-MOST_ATTEMPTS:])
    return [one for one in story.attempts if one.number == only]


def _rounds(attempt: Attempt, links: Links, most: int) -> Iterator[Html]:
    """Those that ended within it, the newest first."""
    for one in reversed(attempt.rounds[-most:]):
        _, *cells = _root(attempt, replace(one.fault, action=went_on(one)), links)
        number = f"{attempt.number}, round {one.number}"
        yield row(_FAULT, [number, *cells], id=f"round-{attempt.number}-{one.number}")
    if len(attempt.rounds) > most:
        left_out = f"and {len(attempt.rounds) - most:,} earlier rounds of this attempt"
        yield row(_FAULT, [str(attempt.number), "", "", "", left_out])


def _root(attempt: Attempt, fault: Trouble, links: Links) -> list[Child]:
    evidence = [
        element("li", element("span", f"{in_words.source(one.source)}: ", class_="dim"), cut(one.text, 1024))
        for one in fault.evidence[:MOST_EVIDENCE]
        if one.text != fault.message
    ]
    next_ = links.advice(cut(fault.next, 600), attempt=attempt.number, beside=fault.node)
    of_attempt = attempt.not_in_place if fault in attempt.faults else ""
    done = "; all pods were made anew: ".join(filter(None, (fault.action, of_attempt)))
    told = element(
        "div",
        element("p", cut(fault.message, _LONGEST)),
        element("ul", *evidence, class_="evidence") if evidence else None,
        element("p", element("span", "Done: ", class_="dim"), cut(done, 600)) if done else None,
        element("p", element("span", "Next: ", class_="dim"), next_) if fault.next else None,
    )
    return [
        str(attempt.number),
        at(fault.time),
        element("strong", cut(fault.cause, 100)),
        _where(attempt, fault, links),
        told,
    ]


def _victim(attempt: Attempt, fault: Trouble, links: Links, *, logged: bool) -> list[Child]:
    return [
        str(attempt.number),
        at(fault.time),
        cut(fault.cause, 100),
        _where(attempt, fault, links, logged=logged),
        cut(fault.message, 300),
    ]


def _where(attempt: Attempt, fault: Trouble, links: Links, *, logged: bool = True) -> Child:
    parts = [fault.node, f"pod {fault.rank}" if fault.rank is not None else ""]
    parts += [f"rank {fault.first_rank}" if fault.first_rank is not None else ""]
    parts += [f"GPU {fault.gpu}" if fault.gpu is not None else "", fault.gpu_uuid]
    parts += [f"XID {fault.xid}" if fault.xid is not None else ""]
    where = cut(", ".join(part for part in parts if part), 300) or DASH
    of = f"attempt {attempt.number}" + (f", pod {fault.rank}" if fault.rank is not None else "")
    log = links.log(attempt.number, pod=fault.rank, time=fault.time) if logged else None
    return _logged(links.said(where), of, log)


def cordons(found: Sequence[Cordon], links: Links | None = None) -> Html | None:
    """Nodes that were taken out of service for this job; None where there are none."""
    links = links or Links()
    if not found:
        return None
    ids: set[int | None] = set()
    rows = []
    for one in found[-MOST_CORDONS:]:
        done = at(one.done_time) if one.done_time else "not yet"
        cells: list[Child] = [
            links.node(one.node),
            done,
            whole(one.attempt),
            one.gpu_uuid or DASH,
            links.beside(cut(one.reason, 600)),
        ]
        cells.append(_uncordoned(one))
        rows.append(row(_CORDON, cells, id=None if one.attempt in ids else f"cordon-{one.attempt}"))
        ids.add(one.attempt)
    heads = {"Uncordoned (UTC)": links.word("used again", "Uncordoned (UTC)")}
    return section("Cordoned nodes", table(_CORDON, rows, heads), head=links.word("cordon", "Cordoned nodes"))


def _uncordoned(one: Cordon) -> Child:
    if one.stands is not False:
        return "not yet" if one.stands else DASH
    by = f" by {cut(one.given_back_by, 300)}" if one.given_back_by else ""
    return element("span", at(one.given_back_time), by) if one.given_back_time else "yes"


def chain(found: Sequence[Moment], links: Links | None = None) -> Html | None:
    """What happened, a line each; of a very long story its beginning and its end."""
    links = links or Links()
    if not found:
        return None
    shown: list[Moment | None] = list(found)
    if len(found) > FIRST_MOMENTS + LAST_MOMENTS:
        shown = [*found[:FIRST_MOMENTS], None, *found[-LAST_MOMENTS:]]
    left_out = f"{len(found) - FIRST_MOMENTS - LAST_MOMENTS:,} lines are left out"
    cells = (
        [at(one.time), cut(one.what, 100), links.said(cut(one.text, 600))] if one else ["", "", left_out]
        for one in shown
    )
    return section("What happened", table(_MOMENT, (row(_MOMENT, each) for each in cells)))


def unknown(found: Sequence[Unknown]) -> Html | None:
    """What could not be had, so that nobody takes its absence for an answer."""
    if not found:
        return None
    rows = [element("li", f"{cut(one.what, 200)}: {cut(one.why, 300)}") for one in found[:MOST_CORDONS]]
    return section("Not known", element("ul", *rows))

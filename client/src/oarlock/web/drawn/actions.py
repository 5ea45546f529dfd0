"""Actions: the links that lead to them, and the page that asks first and says what will happen."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote

from oarlock.clock import parsed
from oarlock.parts import part
from oarlock.report.markup import Child, Html, cut, element, joined
from oarlock.report.parts import at
from oarlock.report.words import duration, some, whole
from oarlock.rows import JobRow, NodeRow
from oarlock.web.drawn.frame import field
from oarlock_api.contract.asked_by import ASKED_BY_ANNOTATION, parse_asked_by
from oarlock_api.contract.requests import RequestState, in_words
from oarlock_api.contract.wire import integer, number, text

ANSWERED_MINUTES = 10
"""For so long an answer of the gang stands at the head of its job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """Something that can be done to a job. `word` is also its method in the SDK, in small letters."""

    word: str
    fits: Callable[[JobRow], bool]
    means: Callable[[JobRow], str]
    """What will happen."""
    already: Callable[[JobRow], bool] = lambda _: False
    """Whether it is asked for already: to ask again changes nothing, and is no mistake."""
    ends: bool = False
    """Whether it cannot be taken back."""

    @property
    def path(self) -> str:
        """The last part of its address."""
        return self.word.lower()


def _suspend(row: JobRow) -> str:
    saves = "It saves a checkpoint at its next step, then its pods" if row.phase == "Running" else "Its pods"
    return f"{saves} leave, and {_gpus(row)} are free for others. Resume has it go on from there, once there is room again."


def _resume(row: JobRow) -> str:
    step = row.checkpoint_step
    begins = (
        f"from its checkpoint of step {whole(step)}" if step is not None else "from the beginning: it has no checkpoint"
    )
    return f"It asks for {_gpus(row)} again, and goes on {begins}."


def _save(row: JobRow) -> str:
    step = row.checkpoint_step
    newest = f"The newest one now is of step {whole(step)}." if step is not None else "It has none yet."
    return f"It writes a checkpoint at its next step, and trains on. {newest}"


def _stop(row: JobRow) -> str:
    if row.finished:
        return f"It has ended. The TrainingJob and its pods are deleted; {_OUTPUT}"
    return (
        f"It saves a checkpoint if it trains; its pods leave, and {_gpus(row)} are free for others. Then the TrainingJob is "
        f"deleted; {_OUTPUT} Until it is deleted, this page's server waits: where that ends before, the job stays suspended."
    )


_OUTPUT = "its output stays, with all checkpoints: submitted anew with the same directory it goes on from there."
ACTIONS = (
    Action(
        word="Suspend",
        fits=lambda row: not row.finished and not row.suspended and not row.deleting,
        means=_suspend,
        already=lambda row: not row.finished and row.suspended and not row.deleting,
    ),
    Action(
        word="Resume",
        fits=lambda row: not row.finished and row.suspended and not row.deleting,
        means=_resume,
        already=lambda row: not row.finished and not row.suspended and not row.deleting,
    ),
    Action(
        word="Save", fits=lambda row: row.phase == "Running" and not row.suspended and not row.deleting, means=_save
    ),
    Action(word="Stop", fits=lambda row: not row.deleting, means=_stop, already=lambda row: row.deleting, ends=True),
)


def job_address(row: JobRow) -> str:
    """Where the job is."""
    return f"/jobs/{quote(row.namespace)}/{quote(row.name)}"


def button(word: str, address: str) -> Html:
    """A link to a page that asks first."""
    return element("a", f"{word}\u2026", href=address, class_="button")


def links(row: JobRow) -> Html | None:
    """A link to each action that fits the job as it is; none where nothing does."""
    found = [action for action in ACTIONS if action.fits(row)]
    if not found:
        return None
    drawn = [button(one.word, f"{job_address(row)}/{one.path}") for one in found]
    return element("nav", *drawn, class_="actions", aria_label=f"What can be done with {row.name}")


def last_action(found: Mapping[str, Any], *, now: str = "") -> Html | None:
    """Who did the last thing by the page to a job, as its annotation says; and how far the last request to its gang is.

    An answer is told until the next attempt, and by `now` for ANSWERED_MINUTES; then it is history.
    """
    asked = parse_asked_by(part(part(found, "metadata"), "annotations").get(ASKED_BY_ANNOTATION))
    status = part(found, "status")
    told = part(status, "request")
    request = _request(told) if _is_current(told, status, parsed(now)) else None
    if asked is None and request is None:
        return None
    words = (f"{asked.action}, asked for by {asked.by}, ", at(asked.time), ". ") if asked else ()
    return element("p", *words, request, class_="dim")


def _is_current(told: Mapping[str, Any], status: Mapping[str, Any], now: datetime | None) -> bool:
    if told.get("state") == RequestState.ASKED:
        return True
    ended = parsed(text(told.get("endTime")))
    over = now is not None and ended is not None and now - ended > timedelta(minutes=ANSWERED_MINUTES)
    return not over and told.get("attempt") in (None, status.get("attempt"))


def _request(told: Mapping[str, Any]) -> Html | None:
    state, verb = text(told.get("state")), in_words(text(told.get("verb")))
    if not state:
        return None
    step, seconds = integer(told.get("step")), number(told.get("seconds"))
    if state == RequestState.DONE and step is not None:
        took = f" after {duration(seconds)}" if seconds is not None else ""
        words = f"step {whole(step)} was saved{took}, "
    else:
        message = cut(text(told.get("message")), 300)
        words = f"{state}: {message}, " if message else f"{state}, "
    return joined(f"The last {verb}: {words}", at(text(told.get("endTime")) or text(told.get("requestTime"))), ".")


USE_AGAIN = "UseAgain"
"""What is done to a node that nobody cordoned, and that jobs avoid."""


def uncordon_link(row: NodeRow, *, namespace: str = "") -> Html:
    """A link to have a node used again. `namespace` is the one of whose jobs the caller may know."""
    query = f"?namespace={quote(namespace)}" if namespace else ""
    return button(_uncordon(row), f"/nodes/{quote(row.name)}/uncordon{query}")


def _uncordon(row: NodeRow) -> str:
    """What it is called: one that nobody cordoned cannot be uncordoned."""
    return "Uncordon" if row.cordoned else "Use again"


def uncordon_title(row: NodeRow) -> str:
    """The question."""
    return f"Uncordon {row.name}?" if row.cordoned else f"Use {row.name} again?"


def ask_job(action: Action, row: JobRow, *, uid: str, csrf: str) -> Html:
    """The page that asks about a job."""
    facts: list[tuple[str, Child]] = [
        ("Job", f"{row.namespace}/{row.name}"),
        ("Phase", row.phase),
        ("Step", f"{whole(row.step)} of {whole(row.total_steps)}"),
        ("Newest checkpoint", f"step {whole(row.checkpoint_step)}" if row.checkpoint_step is not None else "none"),
    ]
    return _ask(
        f"{action.word} {row.name}?",
        action.means(row),
        facts,
        _form(action.word, csrf=csrf, uid=uid, back=job_address(row), ends=action.ends),
    )


def ask_node(row: NodeRow, *, avoided_by: Sequence[str], uid: str, csrf: str) -> Html:
    """The page that asks about a node. `avoided_by` are the jobs that keep off it, as far as the caller may know."""
    cordoned = "by Oarlock" if row.by_oarlock else "by somebody else"
    facts: list[tuple[str, Child]] = [
        ("Node", row.name),
        ("GPUs", whole(row.gpus)),
        ("Cordoned", cordoned if row.cordoned else "no"),
        *([("For", row.job)] if row.cordoned and row.job else []),
        *([("Avoided by", some(avoided_by))] if avoided_by else []),
    ]
    means = joined(
        "Pods may be placed there again, also by jobs that avoid it."
        if row.cordoned
        else "Jobs that avoid it may use it again.",
        " Where its GPU is still broken, the next job that comes there loses an attempt by it: repair the node first.",
    )
    if row.cordoned and row.reason:
        means = joined(means, " It was cordoned at ", at(row.time or ""), f" for this: {cut(row.reason, 600)}")
    form = _form(_uncordon(row), csrf=csrf, uid=uid, back="/nodes", ends=False)
    return _ask(uncordon_title(row), means, facts, form)


def _ask(title: str, means: str, facts: list[tuple[str, Child]], form: Html) -> Html:
    told = element("dl", *(element("div", element("dt", name), element("dd", value)) for name, value in facts))
    return element("section", element("h1", title), element("p", means, class_="means"), told, form, class_="ask")


def _form(word: str, *, csrf: str, uid: str, back: str, ends: bool) -> Html:
    return element(
        "form",
        field(csrf),
        element("input", type="hidden", name="uid", value=uid),
        element("button", word, class_="danger" if ends else "primary"),
        element("a", "Leave it as it is", href=back),
        method="post",
        class_="answer",
    )


def _gpus(row: JobRow) -> str:
    if not row.gpus or not row.nodes:
        return "its nodes"
    return f"{row.gpus:,} GPUs on {row.nodes:,} node{'s' if row.nodes > 1 else ''}"

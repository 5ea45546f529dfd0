"""One job: how it stands, its attempts over time, its GPUs, its curve, what went wrong and what to do about it.

Each part is an element with an id of its own, so that a live page swaps only what has changed. What the viewer has chosen
stands in the address.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from urllib.parse import quote, urlencode

from oarlock.explain.settings import spec_of
from oarlock.facts import Facts
from oarlock.parts import part
from oarlock.report import tables
from oarlock.report.curves import Axis, curves
from oarlock.report.links import nodes_of, xids_of
from oarlock.report.markup import Html, element
from oarlock.report.summary import summary
from oarlock.report.timeline import timeline
from oarlock.report.words import whole
from oarlock.rows import JobRow
from oarlock.story import Story
from oarlock.web.ask import Region, View
from oarlock.web.drawn.actions import last_action, links
from oarlock.web.drawn.events import events
from oarlock.web.drawn.gpus import gpus
from oarlock.web.drawn.health import nodes_of as gpu_nodes
from oarlock.web.drawn.links import PageLinks
from oarlock.web.drawn.manifest import manifest
from oarlock_api.contract.wire import integer, text

PARTS = (
    ("Timeline", "timeline"), ("GPUs", "gpus"), ("Curve", "curve"), ("Faults", "faults"), ("What happened", "what-happened"),
    ("Events", "events"), ("YAML", "yaml"),
)  # fmt: skip
PAGES = (("Logs", "logs"), ("Pictures", "pictures"), ("Every step", "curve"))
"""Of the job, below its own."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What the viewer has chosen: what curves run over, and one attempt that is shown alone."""

    axis: Axis = Axis.STEPS
    attempt: int | None = None

    @classmethod
    def of(cls, *, axis: str, attempt: str) -> Choice:
        """From an address; what cannot be meant is not chosen."""
        number = int(attempt) if attempt.isdecimal() and attempt.isascii() and len(attempt) < 10 else None
        return cls(Axis.TIME if axis == Axis.TIME else Axis.STEPS, number)

    def address(self) -> str:
        """The query that chooses this."""
        chosen = {"axis": self.axis if self.axis is not Axis.STEPS else "", "attempt": self.attempt or ""}
        return f"?{urlencode({name: value for name, value in chosen.items() if value})}"


def address(namespace: str, name: str) -> str:
    """Where the page of a job is."""
    return f"/jobs/{quote(namespace)}/{quote(name)}"


def job(story: Story, facts: Facts, choice: Choice, *, row: JobRow | None = None) -> View:
    """The whole view; with a `row`, it has links to what can be done with the job."""
    region = Region(
        "job", {part: element("div", *inner, id=part) for part, inner in _parts(story, facts, choice, row).items()}
    )
    step = f", step {whole(story.now.step)} of {whole(story.now.total_steps)}" if story.now.total_steps else ""
    return View(title=f"{story.name}: {story.now.phase}{step}", body=region.html(), regions=(region,))


def _parts(story: Story, facts: Facts, choice: Choice, row: JobRow | None) -> dict[str, tuple[Html | None, ...]]:
    here = address(story.namespace, story.name)

    def turned(axis: Axis) -> str:
        return f"{here}{replace(choice, axis=axis).address()}#curve"

    def zoomed(attempt: int | None) -> str:
        return f"{here}{replace(choice, attempt=attempt).address()}#timeline"

    free, avoided = _not_cordoned(story, facts)
    to = PageLinks(
        nodes_of(story),
        namespace=story.namespace,
        job=story.name,
        row=row,
        free=free,
        avoided=avoided,
        xids=xids_of(story, tables.with_faults(story, only=choice.attempt)),
    )
    wanted = integer(spec_of(facts).get("nodes")) or 0
    return {
        "part-how": (
            summary(story, facts, to),
            links(row) if row else None,
            last_action(facts.job or {}, now=facts.time),
            _ways(here),
        ),
        "part-timeline": (timeline(story, only=choice.attempt, zoom=zoomed, links=to),),
        "part-gpus": (gpus(gpu_nodes(facts, story), wanted=wanted, links=to),),
        "part-curve": (curves(story.curve, axis=choice.axis, turn=turned), _close_up(story, here)),
        "part-faults": (tables.faults(story, only=choice.attempt, links=to), tables.cordons(story.cordons, to)),
        "part-attempts": (tables.attempts(story, to),),
        "part-chain": (tables.chain(story.chain, to),),
        "part-events": (events(facts, to),),
        "part-yaml": (manifest(facts),),
        "part-unknown": (tables.unknown(story.unknown),),
    }


def _not_cordoned(story: Story, facts: Facts) -> tuple[set[str], set[str]]:
    """Nodes that are known to take pods: those that the job does not avoid, and those that it does."""
    cordoned = {one.node for one in story.cordons if one.stands is not False}
    open_ = {
        text(part(one, "metadata").get("name"), 253)
        for one in facts.nodes
        if part(one, "spec").get("unschedulable") is not True
    }
    open_ -= cordoned
    return open_ - {*story.avoided}, open_ & {*story.avoided}


def _close_up(story: Story, here: str) -> Html | None:
    """The way to each step, where the curve is only that of the status."""
    if not story.curve or story.directory:
        return None
    return element("p", element("a", "Every step, over steps or time", href=f"{here}/curve"))


def _ways(here: str) -> Html:
    """The way to each part of this page, and to the job's other pages."""
    parts = (element("a", name, href=f"#{part}") for name, part in PARTS)
    pages = (element("a", name, href=f"{here}/{page}") for name, page in PAGES)
    return element("nav", *pages, *parts, aria_label="Parts of this job", class_="way")

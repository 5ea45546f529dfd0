"""The list of jobs: what is going on, at a glance. A row is drawn once for each state of its job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import quote, urlencode

from oarlock.report.markup import Child, Html, cut, element, joined, with_code
from oarlock.report.words import DASH, duration, figure, whole
from oarlock.rows import JobRow, ready
from oarlock.web.ask import Region, View
from oarlock.web.drawn.sparkline import sparkline
from oarlock.web.drawn.words import phase_badge, time_ago
from oarlock.web.watch.jobs import KnownJob

MOST_ROWS = 1000
"""Drawn; of more the first, and how many more there are."""
MOST_FAULT = 80
COLUMNS = (
    ("Job", "job"),
    ("Phase", "phase"),
    ("Progress", "progress"),
    ("Loss", "curve wide-only"),
    ("s/step", "number widest-only"),
    ("Nodes", "number wide-only"),
    ("Restarts", "number widest-only"),
    ("Last fault", "fault"),
    ("Age", "number wide-only"),
)
ORDER = ("Running", "Recovering", "Starting", "Queued", "Pending", "Suspended", "Failed", "Succeeded")


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which jobs are meant."""

    namespace: str | None = None
    text: str = ""
    phase: str = ""

    def has_text(self, row: JobRow) -> bool:
        """Whether the text is in what the job is called or says."""
        said = (row.namespace, row.name, row.message or "", row.last_fault or "")
        return not self.text or self.text.casefold() in "\n".join(said).casefold()

    def address(self, phase: str) -> str:
        """The same jobs of another phase."""
        given = {name: value for name, value in (("text", self.text), ("phase", phase)) if value}
        return f"?{urlencode(given)}" if given else "?"


def jobs(known: Sequence[KnownJob], chosen: Filter) -> View:
    """The whole view."""
    found = [one for one in known if chosen.has_text(one.row)]
    rows = [one for one in found if chosen.phase in ("", _phase(one.row))]
    drawn = {_id(one.row): _row(one.row, one.losses, everywhere=chosen.namespace is None) for one in rows[:MOST_ROWS]}
    body = Region("jobs", drawn, "tbody")
    phases = Region("phases", {"phase-links": _phases(found, chosen), "count": _count(known, rows, chosen)})
    head = element("thead", element("tr", *(element("th", name, scope="col", class_=kind) for name, kind in COLUMNS)))
    title = f"Jobs of {chosen.namespace}" if chosen.namespace else "Jobs"
    return View(
        title=title,
        body=joined(
            element("h1", title),
            _form(chosen, known),
            phases.html(),
            element("table", head, body.html(), class_="jobs"),
        ),
        regions=(phases, body),
    )


def which_namespace(words: str, namespace: str | None) -> View:
    """What who may not see these jobs is told and asked; `words` are the cluster's."""
    title = f"You may not see the jobs of {namespace or 'all namespaces'}"
    name = element("input", type="text", name="name", required=True, maxlength=63, autocapitalize="none")
    form = element(
        "form", element("label", "Namespace ", name), element("button", "Show"), action="/namespace", class_="which"
    )
    return View(
        title=title,
        body=element(
            "div",
            element("h1", title),
            element("p", "Which namespace is yours? Its jobs are shown if you may list them."),
            form,
            element("p", with_code(words), class_="dim"),
            class_="notice",
        ),
    )


def _phase(row: JobRow) -> str:
    return "Deleting" if row.deleting else row.phase


def _id(row: JobRow) -> str:
    return f"job/{row.namespace}/{row.name}"


@lru_cache(maxsize=4096)
def _row(row: JobRow, losses: tuple[float, ...], *, everywhere: bool) -> Html:
    address = f"/jobs/{quote(row.namespace)}/{quote(row.name)}"
    name = element("a", row.name, href=address)
    where = element("span", row.namespace, class_="under") if everywhere else None
    loss = joined(sparkline(losses, "Loss"), element("span", figure(row.loss)))
    cells: tuple[Child, ...] = (
        joined(name, where),
        phase_badge(_phase(row)),
        _progress(row),
        loss,
        figure(row.seconds_per_step),
        ready(row) or DASH,
        whole(row.restarts or 0),
        cut(row.last_fault, MOST_FAULT) if row.last_fault else DASH,
        time_ago(row.created),
    )
    kinds = [f"{kind} none" if kind == "fault" and not row.last_fault else kind for _, kind in COLUMNS]
    drawn = (element("td", cell, class_=kind) for cell, kind in zip(cells, kinds, strict=True))
    return element("tr", *drawn, id=_id(row))


def _progress(row: JobRow) -> Html:
    if row.step is None or not row.total_steps:
        return element("span", cut(row.reason or row.message or DASH, MOST_FAULT), class_="dim")
    done = min(row.step, row.total_steps)
    bar = element("progress", f"{done / row.total_steps:.0%}", value=str(done), max=str(row.total_steps))
    left = f" \u00b7 {duration(row.eta_seconds)} left" if row.eta_seconds is not None and row.phase == "Running" else ""
    return joined(bar, element("span", f"{whole(row.step)} of {whole(row.total_steps)}{left}", class_="under"))


def _phases(found: Sequence[KnownJob], chosen: Filter) -> Html:
    """How many jobs have which phase, each a link to them."""
    counts = Counter(_phase(one.row) for one in found)
    told = [("", "All", len(found))] + [(phase, phase, counts[phase]) for phase in sorted(counts, key=_place)]
    if chosen.phase and chosen.phase not in counts:
        told.append((chosen.phase, chosen.phase, 0))
    links = (
        element(
            "a",
            f"{name} ",
            element("strong", f"{count:,}"),
            href=chosen.address(phase),
            aria_current="true" if phase == chosen.phase else None,
        )
        for phase, name, count in told
    )
    return element("nav", *links, id="phase-links", class_="phases", aria_label="Phases")


def _count(known: Sequence[KnownJob], rows: Sequence[KnownJob], chosen: Filter) -> Html:
    words = ""
    if not known:
        where = f"the namespace {chosen.namespace}" if chosen.namespace else "any namespace"
        words = f"There are no TrainingJobs in {where}. `oarlock submit -f JOB.yaml` starts one."
    elif not rows:
        words = "None of them is like that."
    elif len(rows) > MOST_ROWS:
        words = f"The first {MOST_ROWS:,} of {len(rows):,} are shown: look for a text, or at one namespace."
    return element("p", with_code(words), id="count", class_="dim", role="status")


def _form(chosen: Filter, known: Sequence[KnownJob]) -> Html:
    find = element(
        "input",
        type="search",
        name="text",
        value=chosen.text,
        maxlength=200,
        placeholder="Find a name or a fault",
        aria_label="Find",
    )
    phase = element("input", type="hidden", name="phase", value=chosen.phase) if chosen.phase else None
    return element("form", find, phase, _elsewhere(chosen, known), class_="filter", role="search")


def _elsewhere(chosen: Filter, known: Sequence[KnownJob]) -> Html | None:
    """The way to another namespace."""
    if chosen.namespace:
        return element("a", "All namespaces", href="/jobs")
    names = sorted({one.row.namespace for one in known})
    if len(names) < 2:
        return None
    links = [element("li", element("a", name, href=f"/jobs/{quote(name)}")) for name in names[:MOST_ROWS]]
    return element("details", element("summary", "Namespaces"), element("ul", *links))


def _place(phase: str) -> tuple[int, str]:
    return (ORDER.index(phase) if phase in ORDER else len(ORDER), phase)

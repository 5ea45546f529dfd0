"""Pictures of a job: those of one step, beside those of another one where that is chosen, or one as large as the window."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from urllib.parse import quote, urlencode

from oarlock.explain.curve import thinned
from oarlock.report.markup import Child, Html, element, joined, with_code
from oarlock.report.pictures import Picture
from oarlock.report.words import whole
from oarlock.web.ask import Region, View
from oarlock_api.contract.pictures import THUMBNAIL_EDGE, thumbnail_of

MOST_PICTURES = 256
"""Of a step that are drawn: as many as a validation has prompts."""
MOST_STEPS = 64
"""Of those that one may choose to stand beside."""
Step = tuple[Picture, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which pictures. `step`: or the one before, None: the newest; `beside`: another step; `show`: one file of the step."""

    namespace: str
    job: str
    step: int | None = None
    beside: int | None = None
    show: str = ""

    def address(self) -> str:
        """Where it is shown."""
        given = {"step": self.step, "beside": self.beside, "show": self.show or None}
        query = urlencode({name: value for name, value in given.items() if value is not None})
        return f"{_place(self)}{'?' if query else ''}{query}"


def pictures(choice: Choice, steps: Sequence[Step], words: str = "") -> View:
    """The whole view; `words`: why there are none, or not all."""
    title = f"Pictures of {choice.job}"
    head = element("h1", "Pictures of ", element("a", choice.job, href=_job(choice)))
    told = Region("pictures-told", {"pictures-words": _told(choice, steps, words)})
    if not steps:
        return View(title=title, body=joined(head, told.html()), regions=(told,))
    place = _nearest(steps, choice.step)
    shown = steps[place]
    if choice.show and (large := _large(choice, steps, place)):
        return View(title=title, body=large)
    other = steps[_nearest(steps, choice.beside)] if choice.beside is not None else ()
    region = Region("pictures", _figures(choice, shown, other), attributes={"class_": "frame"})
    body = joined(head, _form(choice, steps, place), _turns(choice, steps, place), told.html(), region.html())
    return View(title=title, body=body, regions=(told, region))


def _nearest(steps: Sequence[Step], wanted: int | None) -> int:
    """The place of the newest step that is not after the wanted one, else of the first."""
    if wanted is None:
        return len(steps) - 1
    return max((place for place, step in enumerate(steps) if step[0].step <= wanted), default=0)


def _told(choice: Choice, steps: Sequence[Step], words: str) -> Html:
    newest = None
    if steps:
        last = steps[-1][0].step
        link = element("a", f"step {whole(last)}", href=replace(choice, step=None, show="").address())
        count = f"{len(steps):,} steps have pictures, the newest is " if len(steps) > 1 else "Only one has pictures, "
        newest = joined(count, link, ".")
    elif not words:
        words = "There are no pictures yet. A job makes some where `spec.training.validation` has prompts."
    return element("p", newest, " " if newest and words else None, with_code(words), id="pictures-words", class_="dim")


def _form(choice: Choice, steps: Sequence[Step], place: int) -> Html | None:
    if len(steps) < 2:
        return None
    numbers = [step[0].step for step in steps]
    apart = math.gcd(*(after - before for before, after in pairwise(numbers)))
    now = numbers[place]
    slider = element(
        "input", type="range", name="step", min=str(numbers[0]), max=str(numbers[-1]), step=str(apart), value=str(now)
    )
    beside = numbers[_nearest(steps, choice.beside)] if choice.beside is not None else None
    offered = sorted({*thinned(numbers, MOST_STEPS), *([beside] if beside is not None else [])})
    options = [element("option", "nothing", value="")] + [
        element("option", f"step {whole(one)}", value=str(one), selected=one == beside) for one in offered
    ]
    return element(
        "form",
        element("label", "Step ", element("output", whole(now)), " ", slider, class_="slide"),
        element("label", "Beside ", element("select", *options, name="beside")),
        element("button", "Show"),
        class_="filter",
    )


def _turns(choice: Choice, steps: Sequence[Step], place: int) -> Html:
    """To the step before and after."""
    return element(
        "nav",
        _turn("Earlier", "ArrowLeft", choice, steps, place - 1),
        _turn("Later", "ArrowRight", choice, steps, place + 1),
        aria_label="Steps",
        class_="way",
    )


def _turn(words: str, key: str, choice: Choice, steps: Sequence[Step], place: int) -> Html | None:
    if not 0 <= place < len(steps):
        return None
    number = steps[place][0].step
    return element(
        "a", f"{words}: step {whole(number)}", href=replace(choice, step=number).address(), aria_keyshortcuts=key
    )


def _figures(choice: Choice, shown: Step, other: Step) -> dict[str, Html]:
    beside = {_file(one): one for one in other}
    found: dict[str, Html] = {}
    for one in shown[:MOST_PICTURES]:
        name = f"picture/{_file(one)}"
        again = beside.get(_file(one))
        both = (_figure(choice, one, named=True), _figure(choice, again, named=True) if again else _absent(other))
        found[name] = (
            element("div", *both, class_="pair", id=name) if other else _figure(choice, one, named=False, id_=name)
        )
    return found


def _absent(other: Step) -> Html:
    return element("p", f"Step {whole(other[0].step)} has no such picture." if other else None, class_="dim")


def _figure(choice: Choice, one: Picture, *, named: bool, id_: str | None = None) -> Html:
    """`named`: with its step, where there are two."""
    small = element(
        "img",
        src=_source(choice, thumbnail_of(one.source)),
        alt=_alt(one),
        loading="lazy",
        **_size(one, THUMBNAIL_EDGE),
    )
    link = replace(choice, step=one.step, beside=None, show=_file(one)).address()
    return element(
        "figure",
        element("a", small, href=link),
        element("figcaption", f"Step {whole(one.step)}: " if named else None, one.name, element("span", _about(one))),
        element("p", one.prompt, class_="prompt") if one.prompt else None,
        class_="picture",
        id=id_,
    )


def _large(choice: Choice, steps: Sequence[Step], place: int) -> Html | None:
    """One picture, as large as the window, and the ways from it; None where the step does not have it."""
    shown = steps[place]
    at = next((number for number, one in enumerate(shown) if _file(one) == choice.show), None)
    if at is None:
        return None
    one = shown[at]
    ways = [
        element(
            "a", "All of the step", href=replace(choice, step=one.step, show="").address(), aria_keyshortcuts="Escape"
        ),
        _turn("Earlier", "ArrowLeft", choice, steps, place - 1),
        _turn("Later", "ArrowRight", choice, steps, place + 1),
        _next("Previous picture", "ArrowUp", choice, shown, at - 1),
        _next("Next picture", "ArrowDown", choice, shown, at + 1),
    ]
    image = element("img", src=_source(choice, one.source), alt=_alt(one), **_size(one))
    return joined(
        element("h1", f"{one.name}, step {whole(one.step)}"),
        element("nav", *ways, aria_label="Pictures", class_="way"),
        element(
            "figure",
            image,
            element("figcaption", one.prompt, element("span", _about(one), class_="dim")),
            class_="large",
        ),
    )


def _next(words: str, key: str, choice: Choice, shown: Step, at: int) -> Html | None:
    if not 0 <= at < len(shown):
        return None
    href = replace(choice, step=shown[at].step, show=_file(shown[at])).address()
    return element("a", words, href=href, aria_keyshortcuts=key)


def _size(one: Picture, most: int | None = None) -> dict[str, Child]:
    """Its width and height, so that nothing moves when it comes."""
    if not (one.width and one.height):
        return {}
    scale = min(1.0, most / max(one.width, one.height)) if most else 1.0
    return {"width": round(one.width * scale), "height": round(one.height * scale)}


def _about(one: Picture) -> str:
    size = f"{one.width} \u00d7 {one.height}" if one.width and one.height else ""
    seed = f"seed {one.seed}" if one.seed is not None else ""
    return " \u00b7 ".join(part for part in (size, seed) if part)


def _alt(one: Picture) -> str:
    return f"{one.name} at step {whole(one.step)}" + (f": {one.prompt}" if one.prompt else "")


def _file(one: Picture) -> str:
    """Its name within the step's folder: the same at every step."""
    return one.source.rpartition("/")[2]


def _source(choice: Choice, file: str) -> str:
    return f"{_place(choice)}/{quote(file)}"


def _place(choice: Choice) -> str:
    return f"{_job(choice)}/pictures"


def _job(choice: Choice) -> str:
    return f"/jobs/{quote(choice.namespace)}/{quote(choice.job)}"

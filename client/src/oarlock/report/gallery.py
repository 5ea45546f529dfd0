"""The gallery: the pictures of one step at a time, with a slider over the steps. Without script, all of them."""

from __future__ import annotations

from collections.abc import Sequence

from oarlock.report.markup import Html, element
from oarlock.report.pictures import Gallery, Picture
from oarlock.report.words import whole


def gallery(found: Gallery) -> Html | None:
    """The section; None where there is no picture."""
    if not found.steps:
        return None
    last = len(found.steps) - 1
    slider = element(
        "p",
        element("label", "Step ", element("output", whole(found.steps[last][0].step), for_="slider"), for_="slider"),
        element("input", type="range", id="slider", min="0", max=str(last), value=str(last), step="1"),
        class_="slider",
        hidden=True,
    )
    return element(
        "section",
        element("h2", "Pictures", id="pictures"),
        slider,
        *(_frame(step) for step in found.steps),
        element("p", f"{found.left_out[0].upper()}{found.left_out[1:]}.", class_="dim") if found.left_out else None,
        aria_labelledby="pictures",
        class_="gallery",
    )


def _frame(step: Sequence[Picture]) -> Html:
    number = step[0].step
    figures = (_figure(one) for one in step)
    head = element("h3", f"Step {whole(number)}")
    return element("div", head, *figures, class_="frame", id=f"pictures-{number}", data_step=whole(number))


def _figure(one: Picture) -> Html:
    size = f"{one.width} \u00d7 {one.height}" if one.width and one.height else ""
    seed = f"seed {one.seed}" if one.seed is not None else ""
    image = element(
        "img",
        src=one.source,
        alt=f"{one.name} at step {whole(one.step)}: {one.prompt}"
        if one.prompt
        else f"{one.name} at step {whole(one.step)}",
        title=one.prompt or None,
        width=one.width or None,
        height=one.height or None,
        loading="lazy",
    )
    link = image if one.source.startswith("data:") else element("a", image, href=one.source)
    about = " \u00b7 ".join(part for part in (size, seed) if part)
    return element(
        "figure", link, element("figcaption", one.name, element("span", about, class_="dim")), class_="picture"
    )

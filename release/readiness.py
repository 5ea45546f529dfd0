"""What a release lacks before it may be published."""

import re
from collections.abc import Iterator

from release.images import why_none
from release.versions import newest_heading
from release.wanted import Run, Wanted


def lacking(wanted: Wanted, run: Run) -> list[str]:
    """Sentences; a dry run tells them at its end, and with any of them nothing is published."""
    return [*_of_the_checkout(wanted, run), *_of_places(wanted)]


def _of_the_checkout(wanted: Wanted, run: Run) -> Iterator[str]:
    heading = newest_heading(wanted.root)
    if not re.match(rf"{re.escape(wanted.version)}(?=\s|$)", heading):
        yield f"the newest section of CHANGELOG.md is headed {heading!r}, not {wanted.version} and the day"
    if run(["git", "status", "--porcelain"]).strip():
        yield "the checkout has changes that are not committed"
    if f"v{wanted.version}" not in run(["git", "tag", "--points-at", "HEAD"]).split():
        yield f"the commit has no tag v{wanted.version}"


def _of_places(wanted: Wanted) -> Iterator[str]:
    if no_images := why_none(wanted):
        yield f"images are not built: {no_images}"
    host = wanted.image_prefix.partition("/")[0]
    if "." not in host and ":" not in host:
        yield f"IMAGE_PREFIX={wanted.image_prefix} names no registry"
    if not wanted.chart_repository:
        yield "the chart goes nowhere: CHART_REPOSITORY=oci://... is not named"
    if not wanted.python_index:
        yield "wheels go nowhere: PYTHON_INDEX=https://... is not named"
    if not wanted.python_index_check:
        yield "nobody can look which wheels are there: PYTHON_INDEX_CHECK=https://.../simple/ is not named"

"""Where the parts of a release go, and bringing them there.

Images were pushed before, because other parts name them by the digests that a registry gives. Files go to the page of the
release on the project's forge by hand: that is where each forge differs.
"""

from collections.abc import Sequence
from pathlib import Path

from release import registry
from release.images import Image, why_none
from release.wanted import Run, Wanted


def publish(wanted: Wanted, chart: Path, wheels: Sequence[Path], *, uv: str, helm_program: Path, run: Run) -> None:
    """Push the chart and upload the wheels, those that are not there yet. Whoever is logged in at helm and uv does it.

    uv skips a wheel that the index has with the same bytes, and refuses one that it has with others.
    """
    if not registry.holds(wanted, chart, helm_program, run):
        run([str(helm_program), "push", str(chart), wanted.chart_repository])
    places = ["--publish-url", wanted.python_index, "--check-url", wanted.python_index_check]
    run([uv, "publish", *places, *map(str, wheels)])


def told(
    wanted: Wanted, images: Sequence[Image], *, chart: Path, wheels: Sequence[Path], others: Sequence[Path]
) -> str:
    """A line for each part: what it is, and where it goes or went."""
    verb = "published to" if wanted.publish else "would go to"
    lines = [f"\nOarlock {wanted.version}, in {wanted.out}"]
    lines += [f"  {image.name} ({image.pushed or image.configuration})  {verb} that registry" for image in images]
    if not images:
        lines.append(f"  no images: {why_none(wanted)}")
    lines.append(f"  {chart.name}  {verb} {wanted.chart_repository or 'CHART_REPOSITORY, which is not named'}")
    lines += [f"  {wheel.name}  {verb} {wanted.python_index or 'PYTHON_INDEX, which is not named'}" for wheel in wheels]
    lines += [f"  {path.name}  to attach to the page of the release v{wanted.version}" for path in others]
    return "\n".join(lines)

"""`make release`: everything is built into one folder, and told where it would go; PUBLISH=yes brings it there.

Exit status 1 where versions disagree, something does not build, or a release that is to be published lacks something.
"""

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from oarlock_local.binaries import HELM
from oarlock_local.build import built
from oarlock_local.errors import LocalError
from release import files, images, publishing, registry
from release.readiness import lacking
from release.versions import ROOT, current, disagreements
from release.wanted import CommandFailed, Run, Wanted, runner


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; returns the exit status."""
    wanted, uv = _read(arguments)
    try:
        return release(wanted, uv=uv, helm_program=built(HELM), run=runner(wanted.root))
    except (CommandFailed, LocalError) as error:
        print(f"release: {error}", file=sys.stderr)
        return 1


def release(wanted: Wanted, *, uv: str, helm_program: Path, run: Run) -> int:
    """Check, build, tell, and publish where that is wanted and nothing is lacking."""
    if wrong := disagreements(wanted.root):
        print("\n".join(["versions disagree:", *wrong]), file=sys.stderr)
        return 1
    gaps = lacking(wanted, run)
    if wanted.publish and gaps:
        print("\n".join(["nothing is published, because", *gaps]), file=sys.stderr)
        return 1
    shutil.rmtree(wanted.out, ignore_errors=True)
    wanted.out.mkdir(parents=True)
    wheels = files.wheels(wanted, uv, run)
    chart = files.chart(wanted, helm_program, run)
    others = [*files.bills(wanted, run), files.site(wanted, run)]
    made = _images(wanted, run)
    # Once the registry has given the images their digests.
    others.append(files.manifest(wanted, helm_program, made))
    if made:
        others.append(images.write_list(made, wanted.out / "images.txt"))
    others.append(files.checksums(wanted, [*wheels, chart, *others]))
    if wanted.publish:
        publishing.publish(wanted, chart, wheels, uv=uv, helm_program=helm_program, run=run)
    print(publishing.told(wanted, made, chart=chart, wheels=wheels, others=others))
    if not wanted.publish:
        print(
            "\n".join(["", "Nothing was published. Before PUBLISH=yes does that:", *(gaps or ["nothing is lacking"])])
        )
    return 0


def _images(wanted: Wanted, run: Run) -> list[images.Image]:
    """Both images, where they can be built: in the registry where the release is published, else on this machine."""
    if images.why_none(wanted):
        return []
    there = {part: registry.pushed(wanted, part, run) for part in images.PARTS} if wanted.publish else {}
    missing = [part for part in images.PARTS if not there.get(part)]
    made = images.build(wanted, missing, run) if missing else []
    if wanted.publish:
        made = [images.push(wanted, image, run) for image in made]
    return sorted([*filter(None, there.values()), *made], key=lambda image: image.part)


def _read(arguments: Sequence[str] | None) -> tuple[Wanted, str]:
    parser = argparse.ArgumentParser(prog="make release", description=__doc__)
    parser.add_argument("--uv", default="uv")
    parser.add_argument("--publish", default="", help="yes: publish; anything else is refused")
    for name in (
        "builder",
        "image-prefix",
        "base",
        "snapshot",
        "chart-repository",
        "python-index",
        "python-index-check",
    ):
        parser.add_argument(f"--{name}", default="")
    given = vars(parser.parse_args(arguments))
    if given["publish"] not in ("", "yes"):
        parser.error(f"PUBLISH={given['publish']}: yes publishes, and nothing else is a word for it")
    uv = given.pop("uv")
    publish = given.pop("publish") == "yes"
    out = ROOT / "out/release"
    return Wanted(root=ROOT, out=out, version=current(ROOT), publish=publish, **given), uv


if __name__ == "__main__":
    sys.exit(main())

"""The files of a release: wheels, the chart's package, a manifest for kubectl, bills of materials, the site, checksums."""

import hashlib
import tarfile
from collections.abc import Sequence
from pathlib import Path

from oarlock_local.plain_manifest import NAMESPACE, without_helm
from release.images import PARTS, Image
from release.wanted import CommandFailed, Run, Wanted


def wheels(wanted: Wanted, uv: str, run: Run) -> list[Path]:
    """A wheel of each distribution. Raises CommandFailed where one is lacking."""
    folder = wanted.out / "wheels"
    pinned = ["--build-constraints", "build.txt", "--require-hashes"]
    run(
        [
            uv,
            "build",
            "--quiet",
            "--all-packages",
            "--wheel",
            *pinned,
            "--no-create-gitignore",
            "--out-dir",
            str(folder),
        ]
    )
    made, distributions = sorted(folder.glob("*.whl")), sorted(wanted.root.glob("*/pyproject.toml"))
    if len(made) != len(distributions):
        raise CommandFailed(f"uv built {len(made)} wheels of {len(distributions)} distributions: see {folder}")
    return made


def chart(wanted: Wanted, helm_program: Path, run: Run) -> Path:
    """The chart as Helm packs it, with the API in it."""
    run([str(helm_program), "package", "charts/oarlock", "--destination", str(wanted.out)])
    return wanted.out / f"oarlock-{wanted.version}.tgz"


def manifest(wanted: Wanted, helm_program: Path, images: Sequence[Image]) -> Path:
    """All that kubectl needs, in one file: the namespace, the API and the operator, with the images' names in it.

    Images that were not built are named by their tags, as they will be.
    """
    named = {part: wanted.image_name(part) for part in PARTS}
    named |= {image.part: image.reference for image in images}
    repository, _, digest = named["operator"].partition("@")
    by_tag = {"repository": repository.rpartition(":")[0], "tag": wanted.version}
    values = {
        "image": {"repository": repository, "digest": digest} if digest else by_tag,
        "trainerImage": named["trainer"],
        # Helm's wish to leave the API alone says nothing to kubectl.
        "crds": {"keep": False},
    }
    head = (
        f"# kubectl apply --server-side -f oarlock-{wanted.version}.yaml\n"
        "# Never `kubectl delete -f` of this file: with the API in it go all TrainingJobs and their pods.\n"
        f"# kubectl delete -f deploy/base/operator.yaml, of the checkout v{wanted.version}, takes the operator alone.\n"
    )
    namespace = f"apiVersion: v1\nkind: Namespace\nmetadata:\n  name: {NAMESPACE}\n"
    path = wanted.out / f"oarlock-{wanted.version}.yaml"
    path.write_text(head + namespace + without_helm(wanted.root, helm_program, values))
    return path


def bills(wanted: Wanted, run: Run) -> list[Path]:
    """What the images' Python environments hold, as CycloneDX."""
    run(["make", "--no-print-directory", "sbom", f"SBOM={wanted.out}"])
    return sorted(wanted.out.glob("*.cdx.json"))


def site(wanted: Wanted, run: Run) -> Path:
    """The documentation."""
    run(["make", "--no-print-directory", "docs"])
    path = wanted.out / f"oarlock-docs-{wanted.version}.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        archive.add(wanted.root / "out/site", arcname=f"oarlock-docs-{wanted.version}")
    return path


def checksums(wanted: Wanted, files: Sequence[Path]) -> Path:
    """SHA256SUMS of the files, as `sha256sum --check` reads it."""
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(wanted.out)}\n" for path in files]
    path = wanted.out / "SHA256SUMS"
    path.write_text("".join(sorted(lines, key=lambda line: line.split()[1])))
    return path

"""The images that every node has."""

import hashlib
import io
import json
import tarfile
from pathlib import Path

import pytest

from oarlock_local.image import full_name, write_archive, write_programs


def read(archive: Path) -> dict[str, bytes]:
    with tarfile.open(archive) as tar:
        return {member.name: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr]


@pytest.fixture
def blobs(tmp_path: Path) -> dict[str, bytes]:
    (tmp_path / "pause").write_bytes(b"a program")
    archive = tmp_path / "images.tar"
    names = ["oarlock.local/host:1", "docker.io/me/other:2"]
    write_archive(archive, pause=tmp_path / "pause", userland_names=names, environ={"HOME": "/tmp"})
    return read(archive)


def _blob(blobs: dict[str, bytes], entry: dict[str, str]) -> bytes:
    return blobs["blobs/" + entry["digest"].replace(":", "/")]


def test_every_blob_is_what_its_digest_says(blobs: dict[str, bytes]) -> None:
    for name, content in blobs.items():
        if name.startswith("blobs/"):
            assert hashlib.sha256(content).hexdigest() == name.rpartition("/")[2]


def test_all_names_of_the_userland_lead_to_the_same_image(blobs: dict[str, bytes]) -> None:
    entries = json.loads(blobs["index.json"])["manifests"]
    digests = {entry["annotations"]["io.containerd.image.name"]: entry["digest"] for entry in entries}
    assert digests["oarlock.local/host:1"] == digests["docker.io/me/other:2"] != digests["oarlock.local/pause:1"]


def test_the_userland_is_usable_by_any_uid(blobs: dict[str, bytes]) -> None:
    manifest = json.loads(_blob(blobs, json.loads(blobs["index.json"])["manifests"][0]))
    with tarfile.open(fileobj=io.BytesIO(_blob(blobs, manifest["layers"][0]))) as layer:
        modes = {member.name: member.mode for member in layer}
    assert modes["tmp"] == 0o1777
    assert modes["root"] == 0o755, "a Python under /root must be reachable"
    config = json.loads(_blob(blobs, manifest["config"]))
    assert config["config"]["Env"] == ["HOME=/tmp"]


def test_an_image_of_a_program_starts_it_as_its_user(tmp_path: Path) -> None:
    (tmp_path / "hello").write_bytes(b"a program")
    write_programs(tmp_path / "images.tar", {"example.test/hello:1": tmp_path / "hello"}, user=8)
    blobs = read(tmp_path / "images.tar")
    [entry] = json.loads(blobs["index.json"])["manifests"]
    assert entry["annotations"]["io.containerd.image.name"] == "example.test/hello:1"
    manifest = json.loads(_blob(blobs, entry))
    config = json.loads(_blob(blobs, manifest["config"]))["config"]
    assert (config["User"], config["Entrypoint"], config["Env"]) == ("8", ["hello"], ["PATH=/bin"])
    with tarfile.open(fileobj=io.BytesIO(_blob(blobs, manifest["layers"][0]))) as layer:
        assert {member.name: member.mode for member in layer} == {"tmp": 0o1777, "bin/hello": 0o755}


@pytest.mark.parametrize(
    ("given", "full"),
    [
        ("busybox", "docker.io/library/busybox:latest"),
        ("me/app:1", "docker.io/me/app:1"),
        ("ghcr.io/me/app", "ghcr.io/me/app:latest"),
        ("localhost:5000/app:2", "localhost:5000/app:2"),
        ("oarlock.local/host:1", "oarlock.local/host:1"),
    ],
)
def test_names_are_completed_as_a_kubelet_does(given: str, full: str) -> None:
    assert full_name(given) == full

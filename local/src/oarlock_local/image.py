"""Images as OCI archives, written by this file alone: the two that every node has from the start, and single programs.

The host userland image holds no program: only the folders and links into which a node binds this machine's own
/usr, Python and code (see node_config). The pause image is one static program.
"""

import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

PAUSE_IMAGE = "oarlock.local/pause:1"
USERLAND_IMAGE = "oarlock.local/host:1"
USERLAND_UID = 1000

_FILES = {
    "etc/passwd": f"root:x:0:0:root:/root:/bin/sh\nuser:x:{USERLAND_UID}:{USERLAND_UID}:user:/tmp:/bin/sh\n"
    "nobody:x:65534:65534:nobody:/:/bin/false\n",
    "etc/group": f"root:x:0:\nuser:x:{USERLAND_UID}:\nnogroup:x:65534:\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}
_FOLDERS = ("usr", "etc", "root", "home", "proc", "sys", "dev", "run", "var", "mnt", "opt", "srv")
# On most machines these lead into /usr; where one is a real folder, node_config shares it like /usr.
USR_LINKS = ("bin", "sbin", "lib", "lib32", "lib64")
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def full_name(name: str) -> str:
    """The name under which a kubelet looks for an image: with registry and tag, as Docker's rules add them."""
    first, slash, _ = name.partition("/")
    if not slash:
        name = f"docker.io/library/{name}"
    elif not (set(first) & {".", ":"} or first == "localhost"):
        name = f"docker.io/{name}"
    return name if ":" in name.rpartition("/")[2] or "@" in name else f"{name}:latest"


def write_archive(path: Path, *, pause: Path, userland_names: Sequence[str], environ: Mapping[str, str]) -> None:
    """Write both images; `environ` becomes the environment of containers of the host userland image."""
    blobs: dict[str, bytes] = {}
    manifests = [
        *_image(blobs, _userland_layer(), userland_names, {"Env": [f"{k}={v}" for k, v in environ.items()]}),
        *_image(blobs, _program_layer("pause", pause), [PAUSE_IMAGE], {"Entrypoint": ["/pause"]}),
    ]
    _write(path, blobs, manifests)


def write_programs(path: Path, programs: Mapping[str, Path], *, user: int) -> None:
    """Write an archive with an image for each static program, by the image's name: its entrypoint, found by its own name.

    It runs as `user`. Beside it there is a /tmp, and nothing else.
    """
    blobs: dict[str, bytes] = {}
    manifests: list[dict[str, object]] = []
    for image, program in programs.items():
        config = {"User": str(user), "Env": ["PATH=/bin"], "Entrypoint": [program.name]}
        manifests += _image(blobs, _program_layer(f"bin/{program.name}", program), [image], config)
    _write(path, blobs, manifests)


def _write(path: Path, blobs: Mapping[str, bytes], manifests: Sequence[Mapping[str, object]]) -> None:
    index = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": manifests,
    }
    with tarfile.open(path, "w") as archive:
        _add(archive, "oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
        _add(archive, "index.json", json.dumps(index).encode())
        for digest, blob in blobs.items():
            _add(archive, f"blobs/sha256/{digest}", blob)


def _image(
    blobs: dict[str, bytes], layer: bytes, names: Sequence[str], config: Mapping[str, object]
) -> list[dict[str, object]]:
    """Add the image's blobs; return one entry of the index per name."""
    layer_entry = _blob(blobs, layer, "application/vnd.oci.image.layer.v1.tar")
    architecture = _ARCHITECTURES.get(platform.machine(), platform.machine())
    described = {
        "architecture": architecture,
        "os": "linux",
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": [layer_entry["digest"]]},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": _blob(blobs, json.dumps(described).encode(), "application/vnd.oci.image.config.v1+json"),
        "layers": [layer_entry],
    }
    entry = _blob(blobs, json.dumps(manifest).encode(), "application/vnd.oci.image.manifest.v1+json")
    return [{**entry, "annotations": {"io.containerd.image.name": name}} for name in names]


def _blob(blobs: dict[str, bytes], content: bytes, media_type: str) -> dict[str, object]:
    digest = hashlib.sha256(content).hexdigest()
    blobs[digest] = content
    return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content)}


def _userland_layer() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as layer:
        for name in _FOLDERS:
            _add_folder(layer, name, 0o755)
        for name in ("tmp", "var/tmp"):
            _add_folder(layer, name, 0o1777)
        for name in USR_LINKS:
            host = Path("/", name)
            if host.is_symlink():
                link = tarfile.TarInfo(name)
                link.type, link.linkname = tarfile.SYMTYPE, str(host.readlink())
                layer.addfile(link)
            elif host.is_dir():
                _add_folder(layer, name, 0o755)
        for name, text in _FILES.items():
            _add(layer, name, text.encode())
    return buffer.getvalue()


def _program_layer(name: str, program: Path) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as layer:
        _add_folder(layer, "tmp", 0o1777)
        _add(layer, name, program.read_bytes(), mode=0o755)
    return buffer.getvalue()


def _add(archive: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    archive.addfile(entry, io.BytesIO(content))


def _add_folder(archive: tarfile.TarFile, name: str, mode: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode = tarfile.DIRTYPE, mode
    archive.addfile(entry)

"""The process that speaks with a model hub, through huggingface_hub, for a rank.

A program of its own, because a rank's libraries are told to stay offline when they are imported, and because 34 GB of
network and hashing have no place in a process that trains.

    python -m oarlock_trainer.hub.process --parent PID

It reads one order from its input, does it, and writes one line: {"result": ...}, or {"refused": WORDS} where asking again
changes nothing, or {"failed": WORDS}. The token is HF_TOKEN of its environment.

    {"do": "resolve", "repo", "revision", "cache"}          -> {"commit", "files": [[name, size, hash], ...]}
    {"do": "download", "repo", "commit", "names", "cache"}  -> the folder, whose files are as the hub says
    {"do": "upload", "repo", "private", "folder"}           -> the address of the commit; what is there is not sent again
    {"do": "check", "repo"}                                 -> who the token belongs to
"""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from huggingface_hub import HfApi, constants, snapshot_download
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from oarlock_trainer.runtime.parent import die_with
from oarlock_trainer.runtime.patience import Patience

if TYPE_CHECKING:
    from collections.abc import Sequence

_REFUSALS = (401, 403, 404)
_READING = ("resolve", "download")


class DamagedError(Exception):
    """Files that were fetched are not those of the hub."""


def resolve(order: dict[str, Any]) -> dict[str, Any]:
    """The commit that a revision is, and its files; offline, what the cache has of it."""
    repo, revision = order["repo"], order["revision"]
    if constants.HF_HUB_OFFLINE:
        held = _cached(repo, revision, order["cache"])
        found = sorted(path for path in held.rglob("*") if path.is_file())
        names = [(path.relative_to(held).as_posix(), path.stat().st_size, "") for path in found]
        return {"commit": held.name, "files": names}
    facts = HfApi().model_info(repo, revision=revision, files_metadata=True)
    files = [(one.rfilename, one.size or 0, one.lfs.sha256 if one.lfs else one.blob_id) for one in facts.siblings or ()]
    return {"commit": facts.sha, "files": files}


def download(order: dict[str, Any]) -> str:
    """Fetch those files into the cache; what is there already, and in part, is not fetched again."""
    repo, commit, names, cache = order["repo"], order["commit"], order["names"], order["cache"]
    if constants.HF_HUB_OFFLINE:
        return str(_cached(repo, commit, cache))
    with suppress(LocalEntryNotFoundError):
        held = _cached(repo, commit, cache)
        if _is_whole(held, names):  # the hub, which may be away, need not be asked
            return str(held)
    folder = Path(snapshot_download(repo, revision=commit, cache_dir=cache, allow_patterns=names))
    if not _is_whole(folder, names):
        _verify(repo, commit, cache)
        _checked(folder).write_text("\n".join(names) + "\n", encoding="utf-8")
    return str(folder)


def upload(order: dict[str, Any]) -> str:
    """Make a repository hold the files of a folder, in one commit: readers see all of it, or nothing.

    What an older model left in the same subfolders goes. A name without an owner is one of the token's account.
    """
    api = HfApi()
    made = api.create_repo(order["repo"], private=order["private"], exist_ok=True)
    folder = Path(order["folder"])
    commit = api.upload_folder(
        repo_id=made.repo_id,
        folder_path=folder,
        commit_message="Upload of the trained model",
        delete_patterns=[f"{path.name}/*" for path in folder.iterdir() if path.is_dir()],
    )
    return str(commit)


def check(_: dict[str, Any]) -> str:
    """Tell whose the token is."""
    return str(HfApi().whoami()["name"])


def _is_whole(snapshot: Path, names: Sequence[str]) -> bool:
    """Whether those files are there, and were what the hub's hashes say when they came."""
    checked = _checked(snapshot)
    already = checked.read_text(encoding="utf-8").splitlines() if checked.is_file() else []
    return {*already}.issuperset(names) and all((snapshot / name).is_file() for name in names)


def _checked(snapshot: Path) -> Path:
    return snapshot.parent.parent / f"oarlock-checked-{snapshot.name}"


def _verify(repo: str, commit: str, cache: str | None) -> None:
    """Compare the cache's files with the hashes that the hub tells. What differs goes, so that it is fetched anew."""
    compared = HfApi().verify_repo_checksums(repo, revision=commit, cache_dir=cache)
    for one in compared.mismatches:
        path = Path(compared.verified_path, one["path"])
        path.resolve().unlink(missing_ok=True)
        path.unlink(missing_ok=True)
    if compared.mismatches:
        names = ", ".join(one["path"] for one in compared.mismatches)
        raise DamagedError(f"{names} of {repo} did not arrive as the hub's hashes say, and were removed")


def _cached(repo: str, revision: str | None, cache: str | None) -> Path:
    return Path(
        snapshot_download(
            repo, revision=revision, cache_dir=cache, local_files_only=True, allow_patterns=["model_index.json"]
        )
    )


_WORK = {"resolve": resolve, "download": download, "upload": upload, "check": check}


def answer(order: dict[str, Any], patience: Patience) -> dict[str, Any]:
    """Do what was ordered; what may pass is tried again."""
    work, repo = _WORK[order["do"]], order["repo"]
    try:
        return {"result": patience.ask(lambda: work(order), again=_is_passing)}
    except Exception as error:  # noqa: BLE001 - it is told to the rank, which raises it
        if words := _refusal(error, repo, order.get("cache", "")):
            return {"refused": words}
        return {"failed": _unreachable(error, order["do"]) or f"{type(error).__name__}: {error}"}


def _unreachable(error: BaseException, doing: str) -> str:
    """Which hub was not reached, and the ways around it; empty where it was."""
    found: BaseException | None = error
    # By name: which library speaks HTTP is huggingface_hub's own choice, and has changed between its releases.
    while found and "TransportError" not in {kind.__name__ for kind in type(found).__mro__}:
        found = found.__cause__
    if not found:
        return ""
    instead = ", or name a folder that has the model with training.model.path" if doing in _READING else ""
    return (
        f"the hub {constants.ENDPOINT} cannot be reached ({type(found).__name__}: {found}): correct the network or "
        f"HTTPS_PROXY, set HF_ENDPOINT to a mirror (in pods, both by pod.env){instead}"
    )


def _refusal(error: Exception, repo: str, cache: str = "") -> str:
    """What to do about an error that no second try changes; empty for others."""
    remedy = "tokenSecretRef must name a Secret with a token that may do this"
    if isinstance(error, GatedRepoError):
        return (
            f"{repo} is gated: accept its terms at {constants.ENDPOINT}/{repo} with the account of the token, and set "
            "tokenSecretRef to a Secret with that token"
        )
    if isinstance(error, RevisionNotFoundError):
        return f"{repo} has no such revision: correct `revision`, or leave it out for the main branch"
    if isinstance(error, RepositoryNotFoundError):
        return f"the hub shows no repository {repo} to this token: correct `repo`; for a private one, {remedy}"
    if isinstance(error, LocalEntryNotFoundError | OfflineModeIsEnabled) and constants.HF_HUB_OFFLINE:
        return (
            f"HF_HUB_OFFLINE is set and {cache} has no whole copy of {repo}: fill that cache, mount the "
            "right one (HF_HOME), or unset HF_HUB_OFFLINE"
        )
    if _status(error) in _REFUSALS:
        return f"the hub refused {repo} (HTTP {_status(error)}): {remedy}"
    return ""


def _is_passing(error: Exception) -> bool:
    return isinstance(error, OSError | DamagedError) and not _refusal(error, "") and not _of_this_disk(error)


def _of_this_disk(error: Exception) -> bool:
    return isinstance(error, OSError) and error.errno is not None and not isinstance(error, ConnectionError)


def _status(error: Exception) -> int:
    return error.response.status_code if isinstance(error, HfHubHTTPError) else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Do one order."""
    parser = argparse.ArgumentParser(prog="python -m oarlock_trainer.hub.process")
    parser.add_argument("--parent", type=int, required=True, help="pid of the rank: this process dies with it")
    options = parser.parse_args(arguments)
    die_with(options.parent)
    told = answer(json.loads(sys.stdin.readline()), Patience())
    sys.stdout.write(json.dumps(told) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

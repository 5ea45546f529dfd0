"""Publishing the finished model: to buckets and model hubs, after it is exported, as often as an attempt comes this far.

What is there already is not sent again: a hub compares hashes itself; for a bucket a note in the output says which version
of which object holds which content. In a bucket the index goes first and comes last, after what an older model has left: no
reader begins with a part of one model, or with a mix of two. On a hub it is one commit.
"""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

from oarlock_api.contract.layout import PRIVATE
from oarlock_api.location import Location
from oarlock_trainer.checkpoint.format import digest
from oarlock_trainer.models.families import family_of
from oarlock_trainer.models.family import MODEL_INDEX
from oarlock_trainer.models.needed_files import of_any_copy
from oarlock_trainer.runtime import channel
from oarlock_trainer.runtime.atomic_write import write_json
from oarlock_trainer.runtime.background import Background
from oarlock_trainer.runtime.errors import ConfigurationError, StorageError, storage
from oarlock_trainer.runtime.heartbeat import alive

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from oarlock_api.publishing import Publication
    from oarlock_trainer.hub.hub import Hub
    from oarlock_trainer.models.family import Family
    from oarlock_trainer.runtime.job import Job
    from oarlock_trainer.storage.files import Files
    from oarlock_trainer.storage.locations import Locations


def check(job: Job, locations: Locations, hub: Hub, *, go_on: Callable[[], None]) -> None:
    """Ask each place whether it knows us, before days of training end there.

    Raises ConfigurationError where one does not, and StorageError.
    """
    for number, one in enumerate(job.training.publish):
        if one.hub:
            order = {"do": "check", "repo": one.hub.repo}
            hub.ask(order, token=one.hub.token_secret_ref, named=_field(number, one), go_on=alive(go_on))
        else:
            _files(locations, number, one).find(MODEL_INDEX)


def publish(job: Job, locations: Locations, hub: Hub, model: Path, *, go_on: Callable[[], None]) -> None:
    """Send the model to every place; each is tried, though another fails.

    `go_on` is called while sending, and may raise to stop. Raises StorageError, which says that the model is exported and
    what could not be published; another attempt sends only that.
    """
    wrong, still = [], alive(go_on)
    for number, one in enumerate(job.training.publish):
        try:
            if one.hub:
                order = {"do": "upload", "repo": one.hub.repo, "private": one.hub.private, "folder": str(model)}
                hub.ask(order, token=one.hub.token_secret_ref, named=_field(number, one), go_on=still)
            else:
                note = job.output / PRIVATE / f"published-{one.name}.json"
                _to_files(_files(locations, number, one), model, family_of(job.training.model), note, still)
            channel.send(channel.Event.NOTE, message=f"the model is published: {one.name}")
        except (StorageError, ConfigurationError) as error:
            wrong.append(f"{one.name}: {error}")
    if wrong:
        raise StorageError(f"the model is exported to {model}, and could not be published: {'; '.join(wrong)}")


def _field(number: int, one: Publication) -> str:
    return f"training.publish[{number}].{'hub' if one.hub else 's3'}"


def _files(locations: Locations, number: int, one: Publication) -> Files:
    return locations.files_at(Location(s3=one.s3), f"training.publish[{number}]")


def _to_files(files: Files, model: Path, family: Family, note: Path, go_on: Callable[[], None]) -> None:
    """Make the place hold the model. Adapters are one file; a whole model has an index, which is away meanwhile."""
    paths = {path.relative_to(model).as_posix(): path for path in sorted(model.rglob("*")) if path.is_file()}
    known = _read(note, files.where)
    sent = known["files"]
    contents = {name: _in_background(partial(_content, path), go_on) for name, path in paths.items()}
    there = {entry.name: entry.version for entry in _in_background(files.list, go_on)}
    missing = [name for name in paths if sent.get(name) != [contents[name], there.get(name)]]
    known["replaces"] |= MODEL_INDEX in there  # and stays so where an attempt ends in between
    stale = set(of_any_copy(there, family)).difference(paths) if MODEL_INDEX in paths and known["replaces"] else set()

    def remember() -> None:
        with storage(f"writing {note}"):
            write_json(note, known)

    def send(name: str) -> None:
        _in_background(partial(files.upload, name, paths[name]), go_on)
        now = _in_background(partial(files.find, name), go_on)
        sent[name] = [contents[name], now.version if now else ""]
        remember()

    if MODEL_INDEX in paths and (missing or stale):
        remember()
        for name in (MODEL_INDEX, *stale):
            _in_background(partial(files.remove, name), go_on)
        missing = [*(name for name in missing if name != MODEL_INDEX), MODEL_INDEX]
    for name in missing:
        send(name)


def _content(path: Path) -> str:
    with storage(f"publishing {path}"):
        return digest(path)


def _in_background(work: Callable[[], Any], go_on: Callable[[], None]) -> Any:
    running = Background(work)
    running.join(go_on)
    return running.result()


def _read(note: Path, where: str) -> dict[str, Any]:
    """What was sent to this place: content and version of each file; whether an older model is replaced there."""
    fresh = {"where": where, "files": {}, "replaces": False}
    try:
        found = json.loads(note.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return fresh
    return fresh | found if isinstance(found, dict) and found.get("where") == where else fresh

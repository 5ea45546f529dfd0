"""Publishing the finished model: to buckets and model hubs, after it is exported, as often as an attempt comes this far.

What is there already is not sent again: a hub compares hashes itself; for a bucket a note in the output says which version
of which object holds which content. Into a bucket the index of the model goes last, so that no reader begins with a part;
on a hub it is one commit.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from oarlock_api.contract.layout import PRIVATE
from oarlock_api.location import Location
from oarlock_trainer import channel
from oarlock_trainer.beat import alive
from oarlock_trainer.checkpoint.format import digest
from oarlock_trainer.durable import write_json
from oarlock_trainer.engine.background import Background
from oarlock_trainer.errors import ConfigurationError, StorageError, storage
from oarlock_trainer.models.wanted import INDEX

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from oarlock_api.publishing import Publication
    from oarlock_trainer.job import Job
    from oarlock_trainer.storage.files import Files


def check(job: Job, *, go_on: Callable[[], None]) -> None:
    """Ask each place whether it knows us, before days of training end there.

    Raises ConfigurationError where one does not, and StorageError.
    """
    for number, one in enumerate(job.training.publish):
        if one.hub:
            order = {"do": "check", "repo": one.hub.repo}
            job.hub.ask(order, token=one.hub.token_secret_ref, named=_field(number, one), go_on=alive(go_on))
        else:
            _files(job, number, one).find(INDEX)


def publish(job: Job, model: Path, *, go_on: Callable[[], None]) -> None:
    """Send the model to every place; each is tried, though another fails.

    `go_on` is called while sending, and may raise to stop. Raises StorageError, which says that the model is exported and
    what could not be published; another attempt sends only that.
    """
    wrong, still = [], alive(go_on)
    for number, one in enumerate(job.training.publish):
        try:
            if one.hub:
                order = {"do": "upload", "repo": one.hub.repo, "private": one.hub.private, "folder": str(model)}
                job.hub.ask(order, token=one.hub.token_secret_ref, named=_field(number, one), go_on=still)
            else:
                note = job.output / PRIVATE / f"published-{one.name}.json"
                _to_files(_files(job, number, one), model, note, still)
            channel.send(channel.Event.NOTE, message=f"the model is published: {one.name}")
        except (StorageError, ConfigurationError) as error:
            wrong.append(f"{one.name}: {error}")
    if wrong:
        raise StorageError(f"the model is exported to {model}, and could not be published: {'; '.join(wrong)}")


def _field(number: int, one: Publication) -> str:
    return f"training.publish[{number}].{'hub' if one.hub else 's3'}"


def _files(job: Job, number: int, one: Publication) -> Files:
    return job.files_at(Location(s3=one.s3), f"training.publish[{number}]")


def _to_files(files: Files, model: Path, note: Path, go_on: Callable[[], None]) -> None:
    sent = _read(note)
    if sent.get("where") != files.where:
        sent = {"where": files.where, "files": {}}
    paths = [path for path in model.rglob("*") if path.is_file()]
    for path in sorted(paths, key=lambda path: (path.name == INDEX, path)):
        name = path.relative_to(model).as_posix()
        sent["files"][name] = _in_background(lambda: _send(files, name, path, sent["files"].get(name)), go_on)  # noqa: B023
        write_json(note, sent)


def _send(files: Files, name: str, path: Path, before: list[str] | None) -> list[str]:
    """Send a file, unless it was sent before and is there; returns its content's hash and the version that it has there."""
    with storage(f"publishing {path}"):
        content = digest(path)
        there = files.find(name)
        if there and before == [content, there.version]:
            return before
        files.upload(name, path)
    there = files.find(name)
    return [content, there.version if there else ""]


def _in_background(work: Callable[[], Any], go_on: Callable[[], None]) -> Any:
    running = Background(work)
    running.join(go_on)
    return running.result()


def _read(note: Path) -> dict[str, Any]:
    try:
        found = json.loads(note.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}

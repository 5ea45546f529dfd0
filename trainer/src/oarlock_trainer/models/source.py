"""Models that lie in a bucket or on a hub become folders of each node, before anything reads them.

Rank 0 decides which files of which version are taken (pinned_listing.py), so that all nodes have the same model though
somebody publishes another one meanwhile. One rank of each node fetches; what a node has already is not fetched again, and
needs no hub. Whoever reads the model after that sees a path, and nothing else.
"""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from oarlock_api.location import Location
from oarlock_api.weights import Method
from oarlock_trainer.engine.process_group import PREPROCESS_TIMEOUT, START_TIMEOUT
from oarlock_trainer.models import folder, needed_files
from oarlock_trainer.models.adapters import lora
from oarlock_trainer.models.families import family_of
from oarlock_trainer.models.fetch_progress import FetchProgress
from oarlock_trainer.models.pinned_listing import listing_of
from oarlock_trainer.models.source_kinds import HubSource, StoreSource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from oarlock_api.training import Training
    from oarlock_api.weights import Model
    from oarlock_trainer.engine.process_group import RankGroup
    from oarlock_trainer.hub.hub import Hub
    from oarlock_trainer.models.source_kinds import Source
    from oarlock_trainer.runtime.job import Job
    from oarlock_trainer.storage.locations import Locations

SCRATCH = "oarlock-models"
"""Folder for what is fetched, below the node's temporary one."""


def bring(
    job: Job, ranks: RankGroup, *, locations: Locations, hub: Hub, initial: bool, go_on: Callable[[], None]
) -> Job:
    """The same job, whose model is a folder of this node; so is `initFrom`, where the `initial` weights are needed.

    Collective. `go_on` is called while fetching and waiting, and may raise to stop. Raises ConfigurationError where what lies
    there is no such model, and StorageError.
    """
    training, scratch = job.training, Path(tempfile.gettempdir(), SCRATCH)
    model, start = training.model, training.init_from
    if source := _of_model(model, locations, hub, scratch):
        model = _at(model, _on_every_node(source, _check_of(training), job, ranks, go_on))
    if initial and (stored := _of_initial(training, locations, scratch)):
        start = Location(path=str(_on_every_node(stored, _check_of_initial(training), job, ranks, go_on)))
    return replace(job, training=training.model_copy(update={"model": model, "init_from": start}))


@contextmanager
def sketched(training: Training, locations: Locations, hub: Hub) -> Iterator[Model]:
    """A model that lies elsewhere as a folder here, with empty files for its weights: enough to plan with."""
    with tempfile.TemporaryDirectory(prefix="oarlock-model-") as scratch:
        source = _of_model(training.model, locations, hub, Path(scratch))
        if source is None:
            yield training.model
            return
        here = _sketch(source, Path(scratch, "model"))
        folder.check(here, family_of(training.model), field=source.field)
        yield _at(training.model, here)


def check_stored_initial(training: Training, locations: Locations) -> None:
    """Raise ConfigurationError where `initFrom` names a bucket's files that are none to start with. No weights are read."""
    with tempfile.TemporaryDirectory(prefix="oarlock-initial-") as scratch:
        if source := _of_initial(training, locations, Path(scratch)):
            _check_of_initial(training)(_sketch(source, Path(scratch, "initial")), source.field)


def _sketch(source: StoreSource | HubSource, here: Path) -> Path:
    """The folder `here` with the source's files, empty where they are weights."""
    listing = source.list()
    for entry in listing.entries:
        (here / entry.name).parent.mkdir(parents=True, exist_ok=True)
        (here / entry.name).touch()
    source.read_light(listing, here)
    return here


def _of_model(model: Model, locations: Locations, hub: Hub, scratch: Path) -> StoreSource | HubSource | None:
    """Where a model comes from; None for a path."""
    choose = partial(needed_files.of_model, family=family_of(model))
    if model.s3:
        files = locations.files_at(Location(s3=model.s3), "training.model")
        return StoreSource("training.model.s3", files, choose, scratch)
    if model.hub:
        return HubSource("training.model.hub", hub, model.hub, choose, scratch)
    return None


def _of_initial(training: Training, locations: Locations, scratch: Path) -> StoreSource | None:
    """Where the weights of `initFrom` come from; None for a path, or for none."""
    start = training.init_from
    if not start or not start.s3:
        return None
    files = locations.files_at(Location(s3=start.s3), "training.initFrom")
    whole = partial(needed_files.of_transformer, family=family_of(training.model))
    choose = _adapters if training.method is Method.LORA else whole
    return StoreSource("training.initFrom.s3", files, choose, scratch)


def _check_of(training: Training) -> Callable[[Path, str], None]:
    return lambda found, field: folder.check(found, family_of(training.model), field=field)


def _check_of_initial(training: Training) -> Callable[[Path, str], None]:
    if training.method is Method.LORA:
        return _check_adapters
    return lambda found, field: folder.check_transformer(found, family_of(training.model), field=field)


def _at(model: Model, path: Path) -> Model:
    return model.model_copy(update={"path": str(path), "s3": None, "hub": None})


def _on_every_node(
    source: Source, check: Callable[[Path, str], None], job: Job, ranks: RankGroup, go_on: Callable[[], None]
) -> Path:
    listing = ranks.decide(lambda: listing_of(source, job))

    def share() -> Path | None:
        if job.rank_info.local_rank:
            return None
        found = source.bring(listing, go_on=go_on, tell=FetchProgress(source.field))
        check(found, source.field)
        return found

    ranks.bound_waiting(PREPROCESS_TIMEOUT)
    folders = ranks.shares(share, go_on)
    ranks.bound_waiting(START_TIMEOUT)
    found = folders[job.rank_info.rank - job.rank_info.local_rank]
    if found is None:
        raise AssertionError("the first rank of each node fetches")
    return found


def _adapters(names: Iterable[str]) -> list[str]:
    return [name for name in names if name == lora.FILE]


def _check_adapters(found: Path, field: str) -> None:
    folder.check_file(found, lora.FILE, field=field)

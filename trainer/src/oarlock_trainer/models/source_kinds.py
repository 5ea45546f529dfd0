"""The two kinds of places that a model comes from: a store for files, and a hub."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from oarlock_trainer.models import needed_files
from oarlock_trainer.models.family import MODEL_INDEX
from oarlock_trainer.models.store_fetch import check_room, fetch
from oarlock_trainer.runtime.errors import ConfigurationError, storage
from oarlock_trainer.runtime.heartbeat import Heartbeat
from oarlock_trainer.storage.files import FileEntry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from oarlock_api.weights import HubModel
    from oarlock_trainer.hub.hub import Hub
    from oarlock_trainer.storage.files import Files


@dataclass(frozen=True, slots=True)
class Listing:
    """What is to be taken, of one version: the same on all nodes."""

    version: str
    entries: tuple[FileEntry, ...]


class Source(Protocol):
    """A place with a model."""

    @property
    def field(self) -> str:
        """The job's field that names it."""
        ...

    @property
    def place(self) -> str:
        """What tells it from other places."""
        ...

    @property
    def is_fixed(self) -> bool:
        """Whether what was listed once is there for ever."""
        ...

    def list(self) -> Listing:
        """What there is. Raises ConfigurationError where that is no model, and StorageError."""
        ...

    def bring(self, listing: Listing, *, go_on: Callable[[], None], tell: Callable[[int, int], None]) -> Path:
        """Its folder on this node, fetched where it is not there. Raises ConfigurationError and StorageError."""
        ...

    def read_light(self, listing: Listing, folder: Path) -> None:
        """Write its small files, all but the weights, below a folder."""
        ...


@dataclass(frozen=True, slots=True)
class StoreSource:
    """Files of a store, kept below `scratch` by what they are."""

    field: str
    files: Files
    choose: Callable[[Iterable[str]], list[str]]
    scratch: Path

    @property
    def place(self) -> str:
        """The store's."""
        return self.files.where

    @property
    def is_fixed(self) -> bool:
        """Files may be replaced."""
        return False

    def list(self) -> Listing:
        """The newest of each file."""
        found = {entry.name: entry for entry in self.files.list()}
        names = _chosen(self.choose, found, field=self.field, where=self.files.where)
        entries = tuple(found[name] for name in names)
        facts = [self.files.where, *(f"{entry.name}:{entry.size}:{entry.version}" for entry in entries)]
        return Listing(hashlib.sha256("\n".join(facts).encode()).hexdigest()[:32], entries)

    def bring(self, listing: Listing, *, go_on: Callable[[], None], tell: Callable[[int, int], None]) -> Path:
        """A folder named by the version."""
        folder = self.scratch / listing.version
        fetch(self.files, listing.entries, folder, go_on=go_on, tell=tell)
        return folder

    def read_light(self, listing: Listing, folder: Path) -> None:
        """One request for each."""
        for entry in listing.entries:
            if needed_files.is_light(entry.name):
                (folder / entry.name).write_bytes(self.files.read(entry.name))


@dataclass(frozen=True, slots=True)
class HubSource:
    """A repository of a hub, kept in the container's own cache of hubs, or below `scratch` in the same layout."""

    field: str
    hub: Hub
    model: HubModel
    choose: Callable[[Iterable[str]], list[str]]
    scratch: Path

    @property
    def place(self) -> str:
        """The repository, and what of it is asked for."""
        return f"{self.model.repo}@{self.model.revision}"

    @property
    def is_fixed(self) -> bool:
        """A commit is."""
        return True

    def list(self) -> Listing:
        """The files of the commit that the revision is now."""
        order = {"do": "resolve", "repo": self.model.repo, "revision": self.model.revision}
        told = self._ask(order, Heartbeat())
        found = {name: FileEntry(name, size, version or "") for name, size, version in told["files"]}
        names = _chosen(self.choose, found, field=self.field, where=f"the hub's {self.model.repo}")
        return Listing(told["commit"], tuple(found[name] for name in names))

    def bring(self, listing: Listing, *, go_on: Callable[[], None], tell: Callable[[int, int], None]) -> Path:
        """The snapshot's folder."""
        total = sum(entry.size for entry in listing.entries)
        blobs = self._cache / f"models--{self.model.repo.replace('/', '--')}" / "blobs"
        if not self.hub.is_offline:
            with storage(f"fetching {self.field}"):
                self._cache.mkdir(parents=True, exist_ok=True)
                check_room(self._cache, total - _bytes_in(blobs, total))

        def look() -> None:
            go_on()
            tell(_bytes_in(blobs, total), total)

        return self._download(listing, [entry.name for entry in listing.entries], look)

    def read_light(self, listing: Listing, folder: Path) -> None:
        """Through the cache, as all."""
        names = [entry.name for entry in listing.entries if needed_files.is_light(entry.name)]
        found = self._download(listing, names, Heartbeat())
        for name in names:
            shutil.copyfile(found / name, folder / name)

    @property
    def _cache(self) -> Path:
        return self.hub.cache or self.scratch / "hub"

    def _download(self, listing: Listing, names: Sequence[str], go_on: Callable[[], None]) -> Path:
        order = {"do": "download", "repo": self.model.repo, "commit": listing.version, "names": [*names]}
        return Path(self._ask(order, go_on))

    def _ask(self, order: Mapping[str, object], go_on: Callable[[], None]) -> Any:
        order = {**order, "cache": str(self._cache)}
        return self.hub.ask(order, token=self.model.token_secret_ref, named=self.field, go_on=go_on)


def _chosen(choose: Callable[[Iterable[str]], list[str]], found: Iterable[str], *, field: str, where: str) -> list[str]:
    names = choose(found)
    if not names:
        there = ", ".join(sorted(found)[:5]) or "nothing"
        raise ConfigurationError(
            f"{field}: {where} holds no model in the layout of diffusers, or of adapters, but {there}: name the folder "
            f"that has {MODEL_INDEX}, or for initFrom the transformer's folder or the adapters' file"
        )
    return names


def _bytes_in(blobs: Path, most: int) -> int:
    """Bytes that lie in a hub's cache, the beginnings of files included; no more than what is needed."""
    if not blobs.is_dir():
        return 0
    return min(sum(path.stat().st_blocks * 512 for path in blobs.iterdir() if path.exists()), most)

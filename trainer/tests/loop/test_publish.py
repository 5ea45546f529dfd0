"""The finished model is published whole; what is there is not sent again; what fails says that the model is exported."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from oarlock_trainer.ranks import preload

preload.settle_environment()
import tiny_hub  # noqa: E402

from oarlock_api.contract.job_file import JobFile  # noqa: E402
from oarlock_api.contract.secrets import secret_variable  # noqa: E402
from oarlock_api.training import Training  # noqa: E402
from oarlock_trainer.hub.hub import OFFLINE_BY_DEFAULT, Hub  # noqa: E402
from oarlock_trainer.loop import publish as publishing  # noqa: E402
from oarlock_trainer.models.flux.family import FLUX1  # noqa: E402
from oarlock_trainer.models.needed_files import of_model  # noqa: E402
from oarlock_trainer.runtime.errors import ConfigurationError, StorageError  # noqa: E402
from oarlock_trainer.runtime.job import Job, RankInfo  # noqa: E402
from oarlock_trainer.storage.local import LocalFiles  # noqa: E402
from oarlock_trainer.storage.locations import Locations  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator

OTHER_COPIES = ("transformer/a.fp16.safetensors", "transformer/a.bin")
"""Of weights that are there in plain safetensors, too: nobody fetches them, but readers may ask for them."""
TOKEN = {"name": "hub", "key": "write"}


def nothing() -> None:
    """Nobody stops."""


class Store(LocalFiles):
    """A store that tells what it was sent, and fails at a name."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, field="training.publish[0]")
        self.sent: list[str] = []
        self.fails_at = ""

    def upload(self, name: str, file: Path) -> None:
        if name == self.fails_at:
            raise StorageError("the store is away")
        super().upload(name, file)
        self.sent.append(name)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "output/model"
    for name, content in (
        ("model_index.json", b"{}"),
        ("transformer/a.safetensors", b"a"),
        ("vae/b.safetensors", b"b"),
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def send(store: Store, model: Path) -> list[str]:
    store.sent.clear()
    publishing._to_files(store, model, FLUX1, model.parent / ".oarlock/published-x.json", nothing)
    return store.sent


def test_a_bucket_gets_every_file_and_the_index_last(model: Path, tmp_path: Path) -> None:
    (model.parent / ".oarlock").mkdir()
    store = Store(tmp_path / "store")
    assert send(store, model) == ["transformer/a.safetensors", "vae/b.safetensors", "model_index.json"]
    assert {entry.name: store.read(entry.name) for entry in store.list()} == {
        path.relative_to(model).as_posix(): path.read_bytes() for path in model.rglob("*") if path.is_file()
    }


def test_after_a_failure_only_the_rest_is_sent_and_what_somebody_replaced(model: Path, tmp_path: Path) -> None:
    (model.parent / ".oarlock").mkdir()
    store = Store(tmp_path / "store")
    store.fails_at = "vae/b.safetensors"
    with pytest.raises(StorageError, match="away"):
        send(store, model)
    store.fails_at = ""
    assert send(store, model) == ["vae/b.safetensors", "model_index.json"]
    assert send(store, model) == []
    store.write("transformer/a.safetensors", b"somebody else's")
    (model / "vae/b.safetensors").write_bytes(b"trained on")
    assert send(store, model) == ["transformer/a.safetensors", "vae/b.safetensors", "model_index.json"]
    assert not list(model.rglob(".tmp-*"))


def test_over_an_older_model_no_reader_sees_a_mix_and_nothing_of_it_stays(model: Path, tmp_path: Path) -> None:
    (model.parent / ".oarlock").mkdir()
    seen: list[frozenset[bytes]] = []

    class Watched(Store):
        """A store that is read whenever it has changed."""

        def upload(self, name: str, file: Path) -> None:
            super().upload(name, file)
            self.read_model()

        def remove(self, name: str) -> None:
            super().remove(name)
            self.read_model()

        def read_model(self) -> None:
            names = of_model((entry.name for entry in self.list()), FLUX1)
            if "model_index.json" in names:
                seen.append(frozenset(self.read(name) for name in names))

    store = Watched(tmp_path / "store")
    for name in ("vae/b.safetensors", "transformer/a.safetensors", "transformer/z.safetensors", *OTHER_COPIES):
        store.write(name, b"old")
    for name in ("model_index.json", "README.md"):
        store.write(name, b"{}")
    send(store, model)
    assert seen == [frozenset({b"{}", b"a", b"b"})]
    assert not any(store.find(name) for name in ("transformer/z.safetensors", *OTHER_COPIES))
    assert store.read("README.md") == b"{}"


def test_what_is_no_model_stays_and_an_older_one_that_was_cleared_in_part_goes_at_last(
    model: Path, tmp_path: Path
) -> None:
    (model.parent / ".oarlock").mkdir()
    others = Store(tmp_path / "others")
    others.write("scheduler/monday.txt", b"of another program")
    send(others, model)
    assert others.find("scheduler/monday.txt")

    class Failing(Store):
        """A store in which nothing but the index can be removed."""

        def remove(self, name: str) -> None:
            if name != "model_index.json":
                raise StorageError("the store is away")
            super().remove(name)

    failing = Failing(tmp_path / "store")
    failing.write("model_index.json", b"{}")
    failing.write("transformer/z.safetensors", b"old")
    with pytest.raises(StorageError, match="away"):
        send(failing, model)
    again = Store(tmp_path / "store")
    send(again, model)
    assert again.find("transformer/z.safetensors") is None


@pytest.fixture
def hub() -> Iterator[tiny_hub.TinyHub]:
    with tiny_hub.serving() as running:
        running.token = "hf_right"  # noqa: S105
        yield running


def job(
    hub: tiny_hub.TinyHub,
    output: Path,
    *,
    token: str = "hf_right",  # noqa: S107
    repo: str = "somebody/flux",
) -> tuple[Job, Locations, Hub]:
    """What `check` and `publish` begin with."""
    training = Training.model_validate(
        {
            "model": {"family": "Flux1", "path": "/m"}, "steps": 1,
            "publish": [{"name": "mine", "hub": {"repo": repo, "tokenSecretRef": TOKEN}}],
            "data": {"datasets": [{"name": "d", "source": {"path": "/d"}}]},
        }
    )  # fmt: skip
    file = JobFile(
        job="flux", namespace="default", job_uid="job", attempt=1, nodes=1, gpus_per_node=0,
        output_directory=str(output), training={},
    )  # fmt: skip
    rank_info = RankInfo(rank=0, local_rank=0, world_size=1, local_world_size=1)
    own: dict[str, Any] = {"HF_ENDPOINT": hub.address, "HF_HUB_DISABLE_XET": "1", OFFLINE_BY_DEFAULT: "1"}
    speaks = Hub({**os.environ, **own, secret_variable("hub", "write"): token})
    return Job(file=file, training=training, rank_info=rank_info, simulate_gpus=False), Locations(), speaks


def test_a_hub_gets_the_model_in_one_commit_and_nothing_twice(
    hub: tiny_hub.TinyHub, model: Path, tmp_path: Path
) -> None:
    hub.repos["somebody/flux"] = {"README.md": b"mine", "vae/older.safetensors": b"o", "vae/b.safetensors": b"o"}
    given = job(hub, tmp_path / "output")
    publishing.check(*given, go_on=nothing)
    publishing.publish(*given, model, go_on=nothing)
    held = {name: body for name, body in hub.repos["somebody/flux"].items() if name != ".gitattributes"}
    assert held.pop("README.md") == b"mine"
    assert held == {
        path.relative_to(model).as_posix(): path.read_bytes() for path in model.rglob("*") if path.is_file()
    }
    sent = len(hub.requests("PUT", "/lfs/"))
    assert sent == 2
    publishing.publish(*given, model, go_on=nothing)
    assert len(hub.requests("PUT", "/lfs/")) == sent


def test_a_repository_without_an_owner_is_one_of_the_tokens_account(
    hub: tiny_hub.TinyHub, model: Path, tmp_path: Path
) -> None:
    publishing.publish(*job(hub, tmp_path / "output", repo="flux"), model, go_on=nothing)
    assert "vae/b.safetensors" in hub.repos["somebody/flux"]


def test_a_token_that_the_hub_does_not_know_is_told_before_training(hub: tiny_hub.TinyHub, model: Path) -> None:
    given = job(hub, model.parent, token="hf_wrong")  # noqa: S106
    with pytest.raises(ConfigurationError, match=r"training.publish\[0\].hub: the hub refused .* \(HTTP 401\)"):
        publishing.check(*given, go_on=nothing)
    with pytest.raises(ConfigurationError, match="the Secret hub gives no write"):
        publishing.check(*given[:2], Hub(), go_on=nothing)


def test_a_model_that_cannot_be_published_is_exported_and_the_end_says_so(hub: tiny_hub.TinyHub, model: Path) -> None:
    given = job(hub, model.parent, token="hf_wrong")  # noqa: S106
    with pytest.raises(StorageError, match=r"exported to .*/model, and could not be published: mine: .*401"):
        publishing.publish(*given, model, go_on=nothing)

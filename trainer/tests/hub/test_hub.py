"""A model of a hub becomes a folder of the node: by its commit, once, and as the hub's hashes say."""

from __future__ import annotations

import os
import socket
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from oarlock_trainer.ranks import preload

preload.settle_environment()
import tiny_hub  # noqa: E402
from model_sources import job_of, names_below, nothing, publish  # noqa: E402
from saving import Alone  # noqa: E402

from oarlock_api.weights import HubModel  # noqa: E402
from oarlock_trainer.hub.hub import OFFLINE_BY_DEFAULT, Hub  # noqa: E402
from oarlock_trainer.models import folder, needed_files  # noqa: E402
from oarlock_trainer.models.flux.family import FLUX1  # noqa: E402
from oarlock_trainer.models.source import bring  # noqa: E402
from oarlock_trainer.models.source_kinds import HubSource  # noqa: E402
from oarlock_trainer.runtime.errors import ConfigurationError, StorageError  # noqa: E402
from oarlock_trainer.storage.locations import Locations  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def hub() -> Iterator[tiny_hub.TinyHub]:
    with tiny_hub.serving() as running:
        yield running


def hub_source(hub: tiny_hub.TinyHub, scratch: Path, *, repo: str = "o/m", **environment: str) -> HubSource:
    own = {"HF_ENDPOINT": hub.address, "HF_HUB_DISABLE_XET": "1", OFFLINE_BY_DEFAULT: "1"}
    speaks = Hub({**os.environ, **own, **environment})
    return HubSource(
        "training.model.hub", speaks, HubModel(repo=repo), partial(needed_files.of_model, family=FLUX1), scratch
    )


def brought(source: HubSource) -> Path:
    return source.bring(source.list(), go_on=nothing, tell=nothing)


def test_a_model_of_a_hub_is_fetched_once_by_its_commit_and_checked(
    hub: tiny_hub.TinyHub, tiny_flux: Path, tmp_path: Path
) -> None:
    published = publish(tiny_flux, tmp_path / "published")
    hub.add("o/m", published)
    hub.damaged["vae/diffusion_pytorch_model.safetensors"] = 1
    source = hub_source(hub, tmp_path / "scratch")
    found = brought(source)
    folder.check(found, FLUX1, field="training.model.hub")
    assert names_below(found) == names_below(tiny_flux)
    assert all((found / name).read_bytes() == (published / name).read_bytes() for name in names_below(found))
    hub.asked.clear()
    assert brought(source) == found
    assert hub.requests("GET", "resolve") == []
    refs = tmp_path / "scratch/hub/models--o--m/refs"  # as `hf download` leaves them
    refs.mkdir()
    (refs / "main").write_text(hub.commit("o/m"))
    offline = hub_source(hub, tmp_path / "scratch", **{"HF_HUB_OFFLINE": "1", OFFLINE_BY_DEFAULT: ""})
    hub.asked.clear()
    assert brought(offline) == found
    assert hub.asked == []


def test_a_hub_that_is_not_reached_is_named_with_the_ways_around_it(hub: tiny_hub.TinyHub, tmp_path: Path) -> None:
    with socket.socket() as closed:  # nobody listens there, nor takes the port as long as it is bound
        closed.bind(("127.0.0.1", 0))
        nowhere = f"http://127.0.0.1:{closed.getsockname()[1]}"
        with pytest.raises(StorageError) as raised:
            hub_source(hub, tmp_path, HF_ENDPOINT=nowhere, NO_PROXY="127.0.0.1").list()
    said = str(raised.value)
    assert said.startswith(f"training.model.hub: the hub {nowhere} cannot be reached (ConnectError: ")
    assert [word for word in ("HTTPS_PROXY", "HF_ENDPOINT", "training.model.path") if word not in said] == []


@pytest.fixture
def first(hub: tiny_hub.TinyHub, tiny_flux: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The model as the first attempt of job a has it, from the hub."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "scratch"))
    hub.add("o/m", tiny_flux)
    (tmp_path / ".oarlock").mkdir()
    return fetched(hub, tmp_path, uid="a", attempt=1)


def test_a_job_keeps_to_the_commit_that_its_first_attempt_took_and_another_job_takes_the_newest(
    hub: tiny_hub.TinyHub, first: Path, tmp_path: Path
) -> None:
    old = hub.commit("o/m")
    hub.repos["o/m"]["vae/config.json"] = hub.repos["o/m"]["vae/config.json"] + b" "
    hub.older.add(old)
    assert fetched(hub, tmp_path, uid="a", attempt=2) == first
    assert fetched(hub, tmp_path, uid="b", attempt=1).name == hub.commit("o/m") != old


def fetched(hub: tiny_hub.TinyHub, output: Path, *, uid: str, attempt: int) -> Path:
    """The model of a job as it is after `bring`."""
    ranks: Any = Alone()
    job, own = job_of(uid, output, attempt=attempt), hub_source(hub, output).hub
    brought = bring(job, ranks, locations=Locations(), hub=own, initial=True, go_on=nothing).training.model
    assert brought.hub is None
    return Path(brought.path or "")


@pytest.mark.deep
def test_a_restart_on_a_node_that_has_the_model_asks_nothing_of_a_hub(
    hub: tiny_hub.TinyHub, first: Path, tmp_path: Path
) -> None:
    hub.asked.clear()
    assert fetched(hub, tmp_path, uid="a", attempt=2) == first
    assert hub.asked == []
    lost = first / "vae/config.json"
    lost.unlink()
    assert fetched(hub, tmp_path, uid="a", attempt=3) == first
    assert lost.is_file()


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("gated", "o/m is gated: accept its terms at .*/o/m with the account of the token"),
        ("missing", "shows no repository o/n to this token"),
        ("offline", "HF_HUB_OFFLINE is set and .* has no whole copy of o/m"),
    ],
)
def test_what_a_hub_refuses_says_what_to_do(
    hub: tiny_hub.TinyHub, tiny_flux: Path, tmp_path: Path, case: str, said: str
) -> None:
    hub.add("o/m", tiny_flux)
    if case == "gated":
        hub.gated.add("o/m")
    offline = {"HF_HUB_OFFLINE": "1", OFFLINE_BY_DEFAULT: ""} if case == "offline" else {}
    source = hub_source(hub, tmp_path / "scratch", repo="o/n" if case == "missing" else "o/m", **offline)
    with pytest.raises(ConfigurationError, match=f"training.model.hub: .*{said}"):
        source.list()

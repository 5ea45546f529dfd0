"""A model from a bucket or a hub becomes a folder of the node: whole, once, and only what diffusers reads."""

from __future__ import annotations

import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from oarlock_trainer import warm

warm.settle_environment()
import tiny_hub  # noqa: E402
from saving import PLACE, Alone  # noqa: E402

from oarlock_api.contract.job_file import JobFile  # noqa: E402
from oarlock_api.training import Training  # noqa: E402
from oarlock_api.weights import HubModel  # noqa: E402
from oarlock_trainer.errors import ConfigurationError, LeftOnRequest, StorageError  # noqa: E402
from oarlock_trainer.hub.hub import Hub  # noqa: E402
from oarlock_trainer.job import Job  # noqa: E402
from oarlock_trainer.models import store_fetch, wanted  # noqa: E402
from oarlock_trainer.models.flux import folder  # noqa: E402
from oarlock_trainer.models.source import bring, check_stored_initial  # noqa: E402
from oarlock_trainer.models.source_kinds import HubSource, StoreSource  # noqa: E402
from oarlock_trainer.models.taken import listing_of  # noqa: E402
from oarlock_trainer.models.told import Told  # noqa: E402
from oarlock_trainer.storage.local import LocalFiles  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oarlock_trainer.storage.files import Entry

FIELD = "training.model.s3"


def nothing(*_: int) -> None:
    """Nobody waits and nobody listens."""


class Counting(LocalFiles):
    """A store that tells what is read of it."""

    def __init__(self, place: Path) -> None:
        super().__init__(place, field=FIELD)
        self.reads: list[tuple[str, int]] = []

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        self.reads.append((name, start))
        return super().read(name, start, length)


@pytest.fixture
def published(tiny_flux: Path, tmp_path: Path) -> Path:
    """A repository as people publish them: with copies of the weights that nobody here reads."""
    place = tmp_path / "published"
    shutil.copytree(tiny_flux, place)
    for extra in (
        "flux1-dev.safetensors",
        "README.md",
        "transformer/diffusion_pytorch_model.bin",
        "transformer/diffusion_pytorch_model.fp16.safetensors",
        "text_encoder/model.onnx",
        "text_encoder_2/flax_model.msgpack",
    ):
        (place / extra).write_bytes(b"not wanted")
    return place


def names_below(place: Path) -> set[str]:
    return {path.relative_to(place).as_posix() for path in place.rglob("*") if path.is_file()}


def source_of(place: Path, scratch: Path) -> tuple[StoreSource, Counting]:
    files = Counting(place)
    return StoreSource(FIELD, files, wanted.of_model, scratch), files


def test_only_what_diffusers_reads_is_fetched_and_it_is_a_model(
    published: Path, tiny_flux: Path, tmp_path: Path
) -> None:
    source, _ = source_of(published, tmp_path / "scratch")
    found = source.bring(source.list(), go_on=nothing, tell=nothing)
    folder.check(found, field=FIELD)
    assert names_below(found) == names_below(tiny_flux)
    assert all((found / name).read_bytes() == (published / name).read_bytes() for name in names_below(found))


def test_a_network_without_safetensors_keeps_its_other_weights_and_a_lone_variant_is_kept() -> None:
    names = ["vae/config.json", "vae/x.bin", "transformer/config.json", "transformer/x.fp16.safetensors", "vae/x.onnx"]
    assert set(wanted.of_model(names)) == set(names) - {"vae/x.onnx"}
    parts = [f"transformer/x-0000{n}-of-00002.safetensors" for n in (1, 2)]
    index = "transformer/x.safetensors.index.json"
    twins = ["transformer/x.bin", "transformer/x.bin.index.json", "transformer/x.fp16.safetensors.index.json"]
    assert wanted.of_transformer([*parts, index, *twins, "model_index.json"]) == sorted([*parts, index])


def test_what_a_node_has_is_not_fetched_again_until_a_file_changes(published: Path, tmp_path: Path) -> None:
    source, files = source_of(published, tmp_path / "scratch")
    first = source.bring(source.list(), go_on=nothing, tell=nothing)
    files.reads.clear()
    assert source.bring(source.list(), go_on=nothing, tell=nothing) == first
    assert files.reads == []
    (published / "vae/config.json").write_text('{"other": 1}')
    second = source.bring(source.list(), go_on=nothing, tell=nothing)
    assert second != first
    assert (second / "vae/config.json").read_text() == '{"other": 1}'


def test_a_fetch_that_was_stopped_goes_on_with_what_is_missing(
    published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_fetch, "PIECE", 1000)
    monkeypatch.setattr(store_fetch, "_AT_ONCE", 1)
    source, files = source_of(published, tmp_path / "scratch")
    listing = source.list()

    def stop(done: int, total: int) -> None:
        if done > total // 2:
            raise LeftOnRequest("asked to leave")

    with pytest.raises(LeftOnRequest):
        source.bring(listing, go_on=nothing, tell=stop)
    assert not (source.scratch / listing.version).exists()
    pieces = sum(-(-entry.size // 1000) for entry in listing.entries)
    before = len(files.reads)
    told: list[int] = []
    found = source.bring(listing, go_on=nothing, tell=lambda done, _: told.append(done))
    assert told == sorted(told)
    assert len(files.reads) - before <= pieces // 2 + 1
    assert all((found / name).read_bytes() == (published / name).read_bytes() for name in names_below(found))


def test_half_a_line_of_the_journal_and_another_boot_s_journal_are_not_believed(
    published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_fetch, "PIECE", 1000)
    source, files = source_of(published, tmp_path / "scratch")
    listing = source.list()
    parts = source.scratch / f".tmp-{listing.version}"
    for said in (
        store_fetch._BOOT.read_text() + "0 1000 transformer/config.json",
        "another boot\n0 1 vae/config.json\n",
    ):
        shutil.rmtree(source.scratch, ignore_errors=True)
        parts.mkdir(parents=True)
        (parts / ".fetched").write_text(said)
        files.reads.clear()
        found = source.bring(listing, go_on=nothing, tell=nothing)
        assert len(files.reads) == sum(-(-entry.size // 1000) for entry in listing.entries)
        assert (found / "transformer/config.json").read_bytes() == (published / "transformer/config.json").read_bytes()


def test_two_processes_of_a_node_fetch_a_model_once(published: Path, tmp_path: Path) -> None:
    source, files = source_of(published, tmp_path / "scratch")
    listing = source.list()
    with ThreadPoolExecutor(2) as pool:  # the lock tells their open files apart, as it does those of processes
        found = list(pool.map(lambda _: source.bring(listing, go_on=nothing, tell=nothing), range(2)))
    assert found[0] == found[1]
    assert len(files.reads) == len(listing.entries)


def test_a_fetch_tells_how_far_it_is_how_fast_and_how_long_it_still_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    heard, told = os.pipe()
    monkeypatch.setenv("OARLOCK_AGENT_FD", str(told))
    times = iter((0.0, 0.0, 2.0, 2.0, 10.0, 10.0))
    tell = Told("training.model.s3", clock=lambda: next(times))
    for gigabytes in (4, 6, 14):
        tell(gigabytes * 10**9, 34 * 10**9)
    os.close(told)
    with os.fdopen(heard) as lines:
        events = [json.loads(line) for line in lines]
    assert [one["event"] for one in events] == ["working", "working", "working", "note"]
    assert events[-1]["message"] == "training.model.s3: 14.0 of 34.0 GB fetched, 1000 MB/s, 20 s left"


def test_a_file_that_is_replaced_meanwhile_is_no_part_of_a_model(published: Path, tmp_path: Path) -> None:
    source, _ = source_of(published, tmp_path / "scratch")
    listing = source.list()

    def replace_one(*_: int) -> None:
        path = published / "vae/config.json"
        other = tmp_path / "other"
        other.write_bytes(b"x" * path.stat().st_size)
        other.replace(path)  # at once: whoever reads has the one or the other

    with pytest.raises(StorageError, match=r"vae/config.json .* changed while it was fetched"):
        source.bring(listing, go_on=nothing, tell=replace_one)
    assert [path.name for path in source.scratch.iterdir() if not path.name.startswith(".lock")] == []


def test_a_model_that_does_not_fit_on_the_disk_is_told_before_a_byte_is_fetched(
    published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(store_fetch.shutil, "disk_usage", lambda _: replace_free(usage, 1000))
    source, files = source_of(published, tmp_path / "scratch")
    with pytest.raises(StorageError, match=r"0\.0 GB are free: mount a larger volume"):
        source.bring(source.list(), go_on=nothing, tell=nothing)
    assert files.reads == []


def replace_free(usage: Any, free: int) -> Any:
    return usage._replace(free=free)


def test_a_place_without_a_model_says_what_it_has(tmp_path: Path) -> None:
    (tmp_path / "cat.jpg").write_bytes(b"x")
    source, _ = source_of(tmp_path, tmp_path / "scratch")
    with pytest.raises(ConfigurationError, match=r"training.model.s3: .* but cat.jpg: name the folder"):
        source.list()


@pytest.fixture
def hub() -> Iterator[tiny_hub.TinyHub]:
    with tiny_hub.serving() as running:
        yield running


def hub_source(hub: tiny_hub.TinyHub, scratch: Path, *, repo: str = "o/m", **environment: str) -> HubSource:
    own = {"HF_ENDPOINT": hub.address, "HF_HUB_DISABLE_XET": "1", warm.OFFLINE_BY_DEFAULT: "1"}
    speaks = Hub({**os.environ, **own, **environment})
    return HubSource("training.model.hub", speaks, HubModel(repo=repo), wanted.of_model, scratch)


def brought(source: HubSource) -> Path:
    return source.bring(source.list(), go_on=nothing, tell=nothing)


def test_a_model_of_a_hub_is_fetched_once_by_its_commit_and_checked(
    hub: tiny_hub.TinyHub, published: Path, tiny_flux: Path, tmp_path: Path
) -> None:
    hub.add("o/m", published)
    hub.damaged["vae/diffusion_pytorch_model.safetensors"] = 1
    source = hub_source(hub, tmp_path / "scratch")
    found = brought(source)
    folder.check(found, field="training.model.hub")
    assert names_below(found) == names_below(tiny_flux)
    assert all((found / name).read_bytes() == (published / name).read_bytes() for name in names_below(found))
    hub.asked.clear()
    assert brought(source) == found
    assert hub.requests("GET", "resolve") == []
    refs = tmp_path / "scratch/hub/models--o--m/refs"  # as `hf download` leaves them
    refs.mkdir()
    (refs / "main").write_text(hub.commit("o/m"))
    offline = hub_source(hub, tmp_path / "scratch", **{"HF_HUB_OFFLINE": "1", warm.OFFLINE_BY_DEFAULT: ""})
    hub.asked.clear()
    assert brought(offline) == found
    assert hub.asked == []


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
    job = job_of(uid, output, attempt=attempt, hub=hub_source(hub, output).hub)
    brought = bring(job, ranks, initial=True, go_on=nothing).training.model
    assert brought.hub is None
    return Path(brought.path or "")


def job_of(uid: str, output: Path, *, attempt: int = 1, hub: Hub | None = None) -> Job:
    training = Training.model_validate(
        {
            "model": {"family": "Flux1", "hub": {"repo": "o/m"}}, "steps": 1,
            "data": {"datasets": [{"name": "d", "source": {"path": "/d"}}]},
        }
    )  # fmt: skip
    file = JobFile(
        job="flux", namespace="default", job_uid=uid, attempt=attempt, nodes=1, gpus_per_node=0,
        output_directory=str(output), training={},
    )  # fmt: skip
    return Job(file=file, training=training, place=PLACE, simulate_gpus=False, hub=hub or Hub())


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


def test_a_store_that_does_not_answer_is_taken_to_hold_what_this_job_found_there_before(
    published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "out/.oarlock").mkdir(parents=True)
    source, _ = source_of(published, tmp_path / "scratch")
    first = listing_of(source, job_of("a", tmp_path / "out"))

    def away(_: Counting) -> list[Entry]:
        raise StorageError("the store does not answer")

    monkeypatch.setattr(Counting, "list", away)
    assert listing_of(source, job_of("a", tmp_path / "out")) == first
    assert "the store does not answer; going on with what was there before" in capfd.readouterr().err
    with pytest.raises(StorageError, match="does not answer"):
        listing_of(source, job_of("b", tmp_path / "out"))
    with pytest.raises(StorageError, match="does not answer"):
        listing_of(source_of(tmp_path / "elsewhere", tmp_path)[0], job_of("a", tmp_path / "out"))


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
    offline = {"HF_HUB_OFFLINE": "1", warm.OFFLINE_BY_DEFAULT: ""} if case == "offline" else {}
    source = hub_source(hub, tmp_path / "scratch", repo="o/n" if case == "missing" else "o/m", **offline)
    with pytest.raises(ConfigurationError, match=f"training.model.hub: .*{said}"):
        source.list()


def test_weights_to_start_with_are_looked_at_in_their_bucket_without_reading_them(published: Path) -> None:
    def checked(method: str) -> Counting:
        files = Counting(published)
        location = {"s3": {"connection": "store", "bucket": "models"}}
        training = Training.model_validate(
            {
                "model": {"family": "Flux1", "path": "/m"}, "steps": 1, "method": method, "initFrom": location,
                "s3Connections": [{"name": "store", "endpoint": "http://127.0.0.1:1"}],
                "data": {"datasets": [{"name": "d", "source": {"path": "/d"}}]},
            }
        )  # fmt: skip
        check_stored_initial(training, lambda _location, _field: files)
        return files

    assert {name for name, _ in checked("Full").reads} == {"transformer/config.json"}
    with pytest.raises(ConfigurationError, match=r"training\.initFrom\.s3: .* holds no model"):
        checked("LoRA")

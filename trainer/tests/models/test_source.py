"""A model from a bucket becomes a folder of the node: whole, once, and only what diffusers reads."""

from __future__ import annotations

import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from oarlock_trainer.ranks import preload

preload.settle_environment()
from model_sources import FIELD, Counting, job_of, names_below, nothing, publish, source_of  # noqa: E402

from oarlock_api.training import Training  # noqa: E402
from oarlock_trainer.models import (  # noqa: E402
    folder,
    needed_files,
    store_fetch,
)
from oarlock_trainer.models.fetch_progress import FetchProgress  # noqa: E402
from oarlock_trainer.models.flux.family import FLUX1  # noqa: E402
from oarlock_trainer.models.pinned_listing import listing_of  # noqa: E402
from oarlock_trainer.models.source import check_stored_initial  # noqa: E402
from oarlock_trainer.runtime.errors import ConfigurationError, LeftOnRequest, StorageError  # noqa: E402

if TYPE_CHECKING:
    from oarlock_trainer.storage.files import FileEntry


@pytest.fixture
def published(tiny_flux: Path, tmp_path: Path) -> Path:
    return publish(tiny_flux, tmp_path / "published")


def test_only_what_diffusers_reads_is_fetched_and_it_is_a_model(
    published: Path, tiny_flux: Path, tmp_path: Path
) -> None:
    source, _ = source_of(published, tmp_path / "scratch")
    found = source.bring(source.list(), go_on=nothing, tell=nothing)
    folder.check(found, FLUX1, field=FIELD)
    assert names_below(found) == names_below(tiny_flux)
    assert all((found / name).read_bytes() == (published / name).read_bytes() for name in names_below(found))


def test_a_network_without_safetensors_keeps_its_other_weights_and_a_lone_variant_is_kept() -> None:
    names = ["vae/config.json", "vae/x.bin", "transformer/config.json", "transformer/x.fp16.safetensors", "vae/x.onnx"]
    assert set(needed_files.of_model(names, FLUX1)) == set(names) - {"vae/x.onnx"}
    parts = [f"transformer/x-0000{n}-of-00002.safetensors" for n in (1, 2)]
    index = "transformer/x.safetensors.index.json"
    twins = ["transformer/x.bin", "transformer/x.bin.index.json", "transformer/x.fp16.safetensors.index.json"]
    assert needed_files.of_transformer([*parts, index, *twins, "model_index.json"], FLUX1) == sorted([*parts, index])


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
    tell = FetchProgress("training.model.s3", clock=lambda: next(times))
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


def test_a_store_that_does_not_answer_is_taken_to_hold_what_this_job_found_there_before(
    published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "out/.oarlock").mkdir(parents=True)
    source, _ = source_of(published, tmp_path / "scratch")
    first = listing_of(source, job_of("a", tmp_path / "out"))

    def away(_: Counting) -> list[FileEntry]:
        raise StorageError("the store does not answer")

    monkeypatch.setattr(Counting, "list", away)
    assert listing_of(source, job_of("a", tmp_path / "out")) == first
    assert "the store does not answer; going on with what was there before" in capfd.readouterr().err
    with pytest.raises(StorageError, match="does not answer"):
        listing_of(source, job_of("b", tmp_path / "out"))
    with pytest.raises(StorageError, match="does not answer"):
        listing_of(source_of(tmp_path / "elsewhere", tmp_path)[0], job_of("a", tmp_path / "out"))


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
        locations: Any = SimpleNamespace(files_at=lambda _location, _field: files)
        check_stored_initial(training, locations)
        return files

    assert {name for name, _ in checked("Full").reads} == {"transformer/config.json"}
    with pytest.raises(ConfigurationError, match=r"training\.initFrom\.s3: .* holds no model"):
        checked("LoRA")

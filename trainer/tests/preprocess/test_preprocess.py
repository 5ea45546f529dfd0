"""Preprocessing with real ranks and encoders: killed at any moment, it ends with the same shards, and makes none twice."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from agent_process import lives

from oarlock_api.contract.exit_codes import ExitCode
from oarlock_api.contract.layout import DATA_MANIFEST, PRIVATE
from oarlock_local.patience import eventually
from oarlock_local.pytest_tiers import quick_first
from oarlock_local.s3 import serving
from oarlock_trainer.storage.local import LocalFiles

if TYPE_CHECKING:
    from preprocess_runs import Preprocess


def shards(output: Path) -> dict[str, bytes]:
    """Every published file by its name: the indices, and the data that belong to them."""
    embeds = output / "embeds"
    indices = sorted(embeds.rglob("shard-*.npy"))
    files = [*indices, *(path.with_suffix(".bin") for path in indices)]
    return {str(path.relative_to(embeds)): path.read_bytes() for path in files}


def records(output: Path) -> int:
    return sum(len(np.load(path)) for path in (output / "embeds").rglob("shard-*.npy"))


def dealt_out(output: Path) -> int:
    """Records that the last attempt had to make."""
    return sum(len(np.load(path)) for path in (output / PRIVATE / "data" / "work").glob("*.npy"))


def test_every_row_and_caption_has_its_embedding_and_the_manifest_says_where(
    preprocess: Preprocess,
    undisturbed: tuple[Path, dict[str, Any]],
) -> None:
    output, answer = undisturbed
    facts = answer["facts"]
    assert len(facts["latents"]) == preprocess.count
    assert {tuple(shape) for shape in facts["latents"]} == {(4, 8, 8), (4, 6, 10), (4, 10, 6)}
    assert len(facts["texts"]) == preprocess.count + 1
    assert facts["empty"]
    manifest = json.loads((output / DATA_MANIFEST).read_text())
    assert manifest["latents"]["records"] == preprocess.count
    assert manifest["textEmbeds"]["records"] == preprocess.count + 1
    assert manifest["datasets"][0]["rows"] == preprocess.count
    sizes = [path.stat().st_size for path in (output / "embeds" / "latents").glob("*.bin")]
    assert (manifest["latents"]["shards"], manifest["latents"]["bytes"]) == (len(sizes), sum(sizes))
    assert manifest["datasets"][0]["where"] == str(output / "embeds" / "latents")


@pytest.mark.deep
def test_any_number_of_ranks_publishes_the_same_shards(
    preprocess: Preprocess, undisturbed: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    answers = preprocess(tmp_path, ranks=3)
    assert [answer["code"] for answer in answers] == [0, 0, 0], answers
    assert shards(tmp_path) == shards(undisturbed[0])
    assert [answer["facts"] for answer in answers] == [undisturbed[1]["facts"]] * 3


@pytest.mark.parametrize("seed", quick_first(range(4), 2))
def test_killed_at_any_moment_the_next_attempt_makes_what_is_missing_and_nothing_else(
    preprocess: Preprocess, undisturbed: tuple[Path, dict[str, Any]], tmp_path: Path, seed: int
) -> None:
    draw = random.Random(seed)  # noqa: S311 - chooses moments, guards nothing
    whole = shards(undisturbed[0])
    moment, ranks = draw.randrange(1, len(whole) // 2), draw.choice([1, 2])

    def kill(pids: list[int]) -> None:
        eventually(lambda: len(list((tmp_path / "embeds").rglob("shard-*.npy"))) >= moment, f"{moment} shards")
        for pid in pids:
            os.kill(pid, signal.SIGKILL)

    killed = preprocess(tmp_path, ranks=ranks, meanwhile=kill)
    assert {answer["code"] for answer in killed} == {-signal.SIGKILL}
    left = records(tmp_path)
    assert 0 < left < 2 * preprocess.count + 1
    latents = tmp_path / "embeds" / "latents"
    latents.mkdir(exist_ok=True)
    own = LocalFiles(latents, field="f", owner="uid")._mark
    (latents / f".tmp-shard-1.bin-{own}0").touch()  # whatever the kill left, this is like it
    answers = preprocess(tmp_path, ranks=ranks, attempt=2)
    assert [answer["code"] for answer in answers] == [0] * ranks, answers
    assert dealt_out(tmp_path) == 2 * preprocess.count + 1 - left
    assert shards(tmp_path) == whole
    assert not list((tmp_path / "embeds").rglob(".tmp-*"))
    assert answers[0]["facts"] == undisturbed[1]["facts"]


@pytest.mark.deep
@pytest.mark.timeout(func_only=True)
def test_with_pictures_and_embeddings_in_buckets_a_killed_attempt_is_taken_up_all_the_same(
    preprocess: Preprocess, undisturbed: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    if shutil.which("go") is None:
        pytest.skip("Go is not installed: it builds the S3 server")
    with serving(tmp_path / "s3", buckets=["photos", "embeds"]) as server:
        shutil.copytree(preprocess.pictures, tmp_path / "s3" / "photos", dirs_exist_ok=True)
        training = preprocess.training(
            {place: {"s3": {"bucket": "embeds", "prefix": place}} for place in ("imageEmbeds", "textEmbeds")},
            source={"s3": {"bucket": "photos"}},
        ) | {"s3Connections": [{"name": "default", "endpoint": server.endpoint, "region": server.region}]}
        environment = {"AWS_ACCESS_KEY_ID": server.access_key_id, "AWS_SECRET_ACCESS_KEY": server.secret_access_key}

        def indices() -> list[Path]:
            return list((tmp_path / "s3" / "embeds").rglob("shard-*.npy"))

        def kill(pids: list[int]) -> None:
            eventually(lambda: len(indices()) >= 6, "six shards")
            for pid in pids:
                os.kill(pid, signal.SIGKILL)

        killed = preprocess(tmp_path / "out", training, ranks=2, meanwhile=kill, environment=environment)
        assert {answer["code"] for answer in killed} == {-signal.SIGKILL}
        left = sum(len(np.load(path)) for path in indices())
        answers = preprocess(tmp_path / "out", training, ranks=2, attempt=2, environment=environment)
        assert [answer["code"] for answer in answers] == [0, 0], answers
        assert dealt_out(tmp_path / "out") == 2 * preprocess.count + 1 - left
        assert sum(len(np.load(path)) for path in indices()) == 2 * preprocess.count + 1
        facts = undisturbed[1]["facts"]
        assert answers[1]["facts"]["texts"] == facts["texts"]
        assert answers[1]["facts"]["latents"] == facts["latents"]


def test_asked_to_leave_complete_shards_stay_and_the_next_attempt_goes_on(
    preprocess: Preprocess, undisturbed: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    (left,) = preprocess(tmp_path, leaveAfter=preprocess.count // 8)
    assert left["code"] == ExitCode.LEFT_ON_REQUEST
    there = shards(tmp_path)
    assert there.items() < shards(undisturbed[0]).items()
    (answer,) = preprocess(tmp_path, attempt=2)
    assert answer["code"] == 0
    assert shards(tmp_path) == shards(undisturbed[0])


@pytest.mark.deep
def test_a_rank_leaves_while_another_lists(preprocess: Preprocess, tmp_path: Path) -> None:
    def wait_for_the_leaver(pids: list[int]) -> None:
        eventually(lambda: not lives(pids[1]), "the end of rank 1")
        os.kill(pids[0], signal.SIGKILL)

    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        training = preprocess.training(source={"s3": {"bucket": "photos"}})
        training["s3Connections"] = [{"name": "default", "endpoint": endpoint}]
        environment = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
        lister, leaver = preprocess(
            tmp_path, training, ranks=2, meanwhile=wait_for_the_leaver, environment=environment, leaveAfter=2, leaver=1
        )
    assert lister["code"] == -signal.SIGKILL
    assert leaver["code"] == ExitCode.LEFT_ON_REQUEST


@pytest.mark.deep
def test_the_next_attempt_of_a_job_encodes_nothing_and_resolves_nothing_again(
    preprocess: Preprocess, undisturbed: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    shutil.copytree(undisturbed[0], tmp_path, dirs_exist_ok=True)
    (first,) = preprocess(tmp_path, attempt=2)
    places = tmp_path / PRIVATE / "data" / "places"
    before = {path: path.stat().st_mtime_ns for path in places.rglob("*")}
    (second,) = preprocess(tmp_path, attempt=3)
    after = {path: path.stat().st_mtime_ns for path in places.rglob("*")}
    assert len(after) == 2 * 4  # of latents and texts: a folder of three files each
    assert after.items() <= before.items()
    assert first["facts"] == second["facts"] == undisturbed[1]["facts"]
    for answer in (first, second):
        assert "Preprocessing" not in [event.get("name") for event in answer["told"]]


def test_a_cache_of_another_output_is_used_and_fail_asks_for_nothing_then(
    preprocess: Preprocess, undisturbed: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    embeds = undisturbed[0] / "embeds"
    data = {
        "imageEmbeds": {"path": str(embeds / "latents")},
        "textEmbeds": {"path": str(embeds / "text")},
        "onMissingEmbeds": "Fail",
    }
    before = shards(undisturbed[0])
    (answer,) = preprocess(tmp_path, preprocess.training(data))
    assert answer["code"] == 0, answer["said"]
    assert answer["facts"] == undisturbed[1]["facts"]
    assert shards(undisturbed[0]) == before
    assert not (tmp_path / "embeds").exists()


def test_with_fail_what_is_missing_ends_the_job_before_anything_is_encoded(
    preprocess: Preprocess, tmp_path: Path
) -> None:
    (answer,) = preprocess(tmp_path, preprocess.training({"onMissingEmbeds": "Fail"}))
    assert answer["code"] == ExitCode.CONFIGURATION
    assert f"{preprocess.count} latents and {preprocess.count + 1} text embeddings are not cached" in answer["said"]
    assert not (tmp_path / "embeds").exists()


@pytest.mark.deep
@pytest.mark.parametrize("compression", ["Gzip", "Zstd"])
def test_compressed_embeddings_are_read_by_a_job_that_compresses_nothing(
    preprocess: Preprocess, undisturbed: tuple[Path, dict[str, Any]], tmp_path: Path, compression: str
) -> None:
    (answer,) = preprocess(tmp_path / "one", preprocess.training({"compression": compression}))
    assert answer["code"] == 0, answer["said"]
    shutil.copytree(tmp_path / "one" / "embeds", tmp_path / "two" / "embeds")
    before = shards(tmp_path / "two")
    assert all(np.load(path)["coding"].all() for path in (tmp_path / "two").rglob("shard-*.npy"))
    (answer,) = preprocess(tmp_path / "two")
    assert answer["facts"] == undisturbed[1]["facts"]
    assert shards(tmp_path / "two") == before


def test_a_store_that_cannot_be_written_ends_the_job_with_its_name(preprocess: Preprocess, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    data = {"imageEmbeds": {"path": str(tmp_path / "file" / "latents")}}
    (answer,) = preprocess(tmp_path / "out", preprocess.training(data))
    assert answer["code"] == ExitCode.STORAGE
    assert str(tmp_path / "file" / "latents") in answer["said"]


def test_the_same_picture_in_two_datasets_is_encoded_once(preprocess: Preprocess, tmp_path: Path) -> None:
    training = preprocess.training()
    (one,) = training["data"]["datasets"]
    training["data"]["datasets"] = [one, one | {"name": "again"}]
    (answer,) = preprocess(tmp_path, training)
    assert len(answer["facts"]["latents"]) == 2 * preprocess.count
    assert records(tmp_path) == 2 * preprocess.count + 1


def test_rank_0_tells_what_was_encoded_and_which_stage_decides(
    preprocess: Preprocess, undisturbed: tuple[Path, dict[str, Any]]
) -> None:
    notes = [event["message"] for event in undisturbed[1]["told"] if event["event"] == "note"]
    (words,) = [note for note in notes if note.startswith("latents: rank 0 encoded")]
    assert f"{preprocess.count} of {preprocess.count}" in words
    for stage in ("read", "decode", "encode", "pack", "publish"):
        assert f"{stage} " in words
    assert words.endswith("decides about the speed")

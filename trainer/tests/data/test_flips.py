"""Random flips: which samples are mirrored follows from the seed and the sample alone, and every key of before stays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from dealing import EFFECTIVE, MIRRORED, Making, Numbers, loader, numbers, prepared, training

from oarlock_api.training import Training
from oarlock_trainer.data.cache_keys import Encoders
from oarlock_trainer.data.entries import entries_of, entry_keys, keeps_mirrored, picture_at
from oarlock_trainer.data.metadata.recipe import Recipe, table_fingerprint

if TYPE_CHECKING:
    from pathlib import Path

    from oarlock_trainer.data.batches import Loader

STEPS = 40


def flipped(**fields: Any) -> Training:
    sets = [{"name": "photos", "source": {"path": "/data"}, "randomFlip": True}]
    return training(**{"batchSize": EFFECTIVE, "data": {"datasets": sets}} | fields)


def samples(one: Loader, steps: range = range(STEPS)) -> list[Numbers]:
    return [sample for step in steps for sample in numbers(one.step(step))]


def plain(dealt: list[Numbers]) -> list[Numbers]:
    return [(row % MIRRORED, caption, sigma) for row, caption, sigma in dealt]


def test_half_of_the_samples_are_mirrored_and_nothing_else_of_them_changes(tmp_path: Path) -> None:
    data = prepared(tmp_path, mirrored=True)
    found = samples(loader(data, flipped()))
    assert plain(found) == samples(loader(data, training(batchSize=EFFECTIVE)))
    assert 0.4 < sum(row >= MIRRORED for row, _, _ in found) / len(found) < 0.6


def test_a_picture_is_seen_both_ways_over_the_epochs(tmp_path: Path) -> None:
    found = {row for row, _, _ in samples(loader(prepared(tmp_path, mirrored=True), flipped()))}
    seen = {row % MIRRORED for row in found}
    assert found == seen | {row + MIRRORED for row in seen}


def test_who_begins_at_a_later_step_draws_what_an_undisturbed_run_draws_there(tmp_path: Path) -> None:
    data = prepared(tmp_path, mirrored=True)
    undisturbed = samples(loader(data, flipped()))
    resumed = samples(loader(data, flipped()), range(17, STEPS))
    assert resumed == undisturbed[17 * EFFECTIVE :]
    assert samples(loader(data, flipped(seed=7))) != undisturbed


@pytest.mark.parametrize(("ranks", "accumulation"), [(8, 1), (2, 2), (4, 1)])
def test_any_number_of_ranks_mirrors_the_same_samples(tmp_path: Path, ranks: int, accumulation: int) -> None:
    data = prepared(tmp_path, mirrored=True)
    per_rank = EFFECTIVE // ranks // accumulation
    settings = flipped(batchSize=per_rank, gradientAccumulation=accumulation)
    each = [loader(data, settings, rank=rank, ranks=ranks) for rank in range(ranks)]
    alone = loader(data, flipped())
    for step in range(STEPS):
        own = [numbers(one.step(step)) for one in each]
        together = [
            sample
            for micro in range(accumulation)
            for some in own
            for sample in some[micro * per_rank : (micro + 1) * per_rank]
        ]
        assert together == numbers(alone.step(step))


def test_on_the_fly_mirrors_the_same_samples_and_a_picture_that_takes_anothers_place_is_shown_its_way(
    tmp_path: Path,
) -> None:
    data = prepared(tmp_path, mirrored=True)
    sets = [{"name": "photos", "source": {"path": "/a"}, "randomFlip": True, "imageEmbeds": {"mode": "OnTheFly"}}]
    live = flipped(data={"datasets": sets})
    cached = [row for row, _, _ in samples(loader(data, flipped()))]
    assert [row for row, _, _ in samples(loader(data, live, encoding=Making([])))] == cached
    place = {4: 6, 4 + MIRRORED: 6 + MIRRORED}
    found = [row for row, _, _ in samples(loader(data, live, encoding=Making([4])))]
    assert found == [place.get(row, row) for row in cached]
    assert set(place.values()) <= set(found)


def test_a_mirrored_picture_has_a_key_of_its_own_and_the_picture_the_one_of_before(tmp_path: Path) -> None:
    table = prepared(tmp_path).table
    keys = entry_keys(table, 2 * len(table))
    assert keys[: len(table)].tobytes() == table.image_keys().tobytes()
    assert len({key.tobytes() for key in keys}) == 2 * len(table)
    for entry, key in enumerate(keys):
        picture = picture_at(table, entry)
        assert (picture.image_key, picture.mirrored) == (key.tobytes(), entry >= len(table))
        assert picture.name == table.picture(entry % len(table)).name
    # Of row 1. Caches hold it: it may never be another one.
    assert keys[len(table) + 1].tobytes().hex() == "b1dda32444796efefde1e16ea1cc0ede"


def test_a_flip_moves_no_fingerprint_so_scans_and_caches_of_before_are_used(tmp_path: Path) -> None:
    del tmp_path
    encoders = Encoders(vae="v", text="t")

    def facts(settings: Training) -> tuple[str, str]:
        (dataset,) = settings.data.datasets
        recipe = Recipe(training=settings, dataset=dataset, source="/data", encoders=encoders)
        return table_fingerprint(settings, encoders), recipe.fingerprint()

    assert facts(flipped()) == facts(training(batchSize=EFFECTIVE))
    # As it was before there were flips.
    assert facts(training())[1] == "74b98230a911ca97193a153b0f52f724"


def test_only_what_is_stored_mirrored_has_entries_for_it(tmp_path: Path) -> None:
    table = prepared(tmp_path, ("photos", "never", "live")).table
    sets = [
        {"name": "photos", "source": {"path": "/a"}, "randomFlip": True},
        {"name": "never", "source": {"path": "/b"}},
        {"name": "live", "source": {"path": "/c"}, "randomFlip": True, "imageEmbeds": {"mode": "OnTheFly"}},
    ]
    settings = training(data={"datasets": sets})
    assert keeps_mirrored(settings).tolist() == [True, False, False]
    found = entries_of(table.kept, table, settings).reshape(2, 3, -1)
    assert found[0].all()
    assert found[1].all(axis=1).tolist() == [True, False, False]
    assert not found[1, 1:].any()
    assert len(entries_of(table.kept, table, training(data={"datasets": sets[1:]}))) == len(table)

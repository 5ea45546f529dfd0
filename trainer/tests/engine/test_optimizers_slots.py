"""What optimizers keep can be taken out as float32 and put back, and an optimizer that got it goes on as the first would."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from oarlock_api.optimization import Optimizer as Settings
from oarlock_trainer.engine.optimizers import make_optimizer
from oarlock_trainer.engine.slots import NumberSlot, numbers, set_updates, slots, updates

SIZE = 5000
"""No multiple of a block of 256, and enough for moments of 8 bits."""
OF_ADAM = ["exp_avg", "exp_avg_sq"]


def pair(name: str, *, device: str = "cpu") -> tuple[torch.Tensor, torch.optim.Optimizer]:
    shard = torch.randn(SIZE, generator=torch.Generator().manual_seed(2)).to(device)
    rate = {"learningRate": 1.0, "options": {"d0": 1e-2}} if name == "Prodigy" else {"learningRate": 1e-2}
    return shard, make_optimizer([shard], Settings.model_validate({"name": name} | rate))


def update(shard: torch.Tensor, optimizer: torch.optim.Optimizer, *, seed: int, times: int = 1) -> None:
    generator = torch.Generator().manual_seed(seed)
    for _ in range(times):
        shard.grad = torch.randn(SIZE, generator=generator).to(shard.device)
        optimizer.step()


def carried_over(name: str, cut: int, *, device: str = "cpu") -> tuple[torch.Tensor, torch.Tensor]:
    """(shard after six updates, shard after three, a move of everything into a new optimizer, and three more)."""
    shard, optimizer = pair(name, device=device)
    update(shard, optimizer, seed=1, times=3)
    moved, other = pair(name, device=device)
    moved.copy_(shard)
    theirs = slots(other, moved)
    for key, slot in slots(optimizer, shard).items():
        for start, stop in ((0, cut), (cut, SIZE)):
            theirs[key].write(start, slot.read(start, stop).clone())
    for key, number in numbers(optimizer).items():
        numbers(other)[key].write(0, number.read(0, len(number)))
    set_updates(other, moved, updates(optimizer, shard))
    assert updates(other, moved) == 3
    update(shard, optimizer, seed=4, times=3)
    update(moved, other, seed=4, times=3)
    return shard, moved


@pytest.mark.parametrize("name", ["AdamW", "Lion", "Prodigy", "AdamWBF16", "AdamWScheduleFree"])
@pytest.mark.parametrize("cut", [SIZE, 1000])
def test_a_new_optimizer_goes_on_exactly_where_the_first_one_was(name: str, cut: int) -> None:
    shard, moved = carried_over(name, cut)
    assert torch.equal(shard, moved)


@pytest.mark.parametrize("cut", [SIZE, 1024])
def test_moments_of_8_bits_that_move_in_whole_blocks_go_on_exactly(cut: int) -> None:
    shard, moved = carried_over("AdamW8Bit", cut)
    assert torch.equal(shard, moved)


def test_moments_of_8_bits_that_are_cut_within_a_block_go_on_within_the_error_of_their_codes() -> None:
    shard, moved = carried_over("AdamW8Bit", 1000)
    assert not torch.equal(shard, moved)
    torch.testing.assert_close(shard, moved, rtol=0, atol=2e-3)  # three updates of 1e-2


@pytest.mark.parametrize("name", ["AdamW", "Lion", "AdamW8Bit", "AdamWBF16"])
def test_reading_state_that_no_update_has_made_yet_is_zero_and_changes_no_update(name: str) -> None:
    shard, optimizer = pair(name)
    found = slots(optimizer, shard)
    assert list(found) == (["exp_avg"] if name == "Lion" else OF_ADAM)
    assert all(len(slot) == SIZE and not slot.read(0, SIZE).any() for slot in found.values())
    assert updates(optimizer, shard) == 0
    update(shard, optimizer, seed=1, times=2)
    untouched, other = pair(name)
    update(untouched, other, seed=1, times=2)
    assert torch.equal(shard, untouched)
    assert updates(optimizer, shard) == updates(other, untouched) == 2


def test_a_schedule_free_state_begins_at_the_weights() -> None:
    shard, optimizer = pair("AdamWScheduleFree")
    found = slots(optimizer, shard)
    assert list(found) == ["z", "exp_avg_sq"]
    assert torch.equal(found["z"].read(0, SIZE), shard)
    assert not found["exp_avg_sq"].read(0, SIZE).any()


def test_prodigys_start_is_kept_before_the_first_update_already() -> None:
    shard, optimizer = pair("Prodigy")
    found = slots(optimizer, shard)
    assert torch.equal(found.pop("p0").read(0, SIZE), shard)
    assert set(found) == {"s", *OF_ADAM}
    assert not any(slot.read(0, SIZE).any() for slot in found.values())


@pytest.mark.parametrize("number", [1 / 3, 1e-6, 0.1 + 2**-50, -7.0, 0.0, 1e-15 / 3, 12345678.9])
def test_a_number_of_the_whole_optimizer_is_kept_to_the_last_bit(number: float) -> None:
    groups: list[dict[str, Any]] = [{"params": [torch.zeros(2)], "d": given} for given in (number, 0.0)]
    slot = NumberSlot(groups, "d")
    kept = slot.read(0, len(slot))
    assert kept.dtype is torch.float32
    groups[0]["d"] = 5.0
    for start, stop in ((0, 2), (2, 3)):  # two ranks' shares
        slot.write(start, kept[start:stop])
    assert groups[0]["d"] == groups[1]["d"] == number


def test_the_state_that_is_made_early_is_torchs_own() -> None:
    def described(shard: torch.Tensor, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        return {key: (value.dtype, value.shape, value.device) for key, value in optimizer.state[shard].items()}

    early, made = pair("AdamW")
    slots(made, early)
    late, own = pair("AdamW")
    update(late, own, seed=1)
    assert described(early, made) == described(late, own)


def test_8_bits_round_by_at_most_one_percent_of_the_largest_in_the_block() -> None:
    shard, optimizer = pair("AdamW8Bit")
    values = torch.randn(SIZE, generator=torch.Generator().manual_seed(7))
    for name, bound, given in (("exp_avg", 0.0106, values), ("exp_avg_sq", 0.0036, values.abs())):
        slot = slots(optimizer, shard)[name]
        slot.write(0, given)
        for block, found in zip(given.split(256), slot.read(0, SIZE).split(256), strict=True):
            assert float((block - found).abs().max()) <= bound * float(block.abs().max())


def test_8_bits_take_a_quarter_of_float32() -> None:
    def held(name: str) -> int:
        shard, optimizer = pair(name)
        slots(optimizer, shard)
        moments = [value for key, value in optimizer.state[shard].items() if key != "step" and "qmap" not in key]
        return sum(value.numel() * value.element_size() for value in moments)

    assert held("AdamW8Bit") < 0.26 * held("AdamW")


def test_adamw_goes_on_from_what_8_bits_kept() -> None:
    shard, eight = pair("AdamW8Bit")
    update(shard, eight, seed=1, times=3)
    moved, full = pair("AdamW")
    for name, slot in slots(eight, shard).items():
        slots(full, moved)[name].write(0, slot.read(0, SIZE))
    for name, slot in slots(full, moved).items():
        assert torch.equal(slot.read(0, SIZE), slots(eight, shard)[name].read(0, SIZE))


def test_8_bits_train_as_float32_does_within_their_error() -> None:
    shard, eight = pair("AdamW8Bit")
    update(shard, eight, seed=1, times=20)
    plain, full = pair("AdamW")
    update(plain, full, seed=1, times=20)
    torch.testing.assert_close(shard, plain, rtol=0, atol=0.03)  # twenty updates of up to 1e-2


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize("name", ["AdamW", "Lion", "AdamW8Bit", "Prodigy", "AdamWBF16", "AdamWScheduleFree"])
def test_on_a_gpu_too_a_new_optimizer_goes_on_exactly(name: str) -> None:
    shard, moved = carried_over(name, SIZE, device="cuda")
    assert torch.equal(shard, moved)

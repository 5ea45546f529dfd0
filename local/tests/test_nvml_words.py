"""Words for the pretended NVML: what is said replaces, counts up or piles up, and nonsense is refused."""

from pathlib import Path

import pytest

from oarlock_local.errors import LocalError
from oarlock_local.nvml import Control


@pytest.fixture
def control(tmp_path: Path) -> Control:
    return Control(tmp_path)


def test_a_word_replaces_the_one_of_its_name_on_its_gpu_alone(control: Control) -> None:
    control.set("gpus=8", "1:action=1", "2:action=1", "old")
    control.set("1:action=4")
    assert control.words == ["gpus=8", "2:action=1", "old", "1:action=4"]


def test_events_pile_up_and_their_numbers_never_fall(control: Control) -> None:
    control.set("1:xid=31", "1:xid=31")
    control.inject(gpu=0, xid=43)
    assert control.words == ["1:xid=31@1", "1:xid=31@2", "0:xid=43@3", "seq=3"]
    control.clear()
    control.set("0:event=16384/0")
    assert control.words == ["0:event=16384/0@4", "seq=4"]
    with pytest.raises(LocalError, match="4 events have been already"):
        control.set("0:xid=43@4")


def test_words_are_cleared_by_name_by_gpu_or_all_but_what_the_machine_is(control: Control) -> None:
    said = ["gpus=8", "node=node-1", "1:gone", "1:action=1", "11:gone", "hangcalls"]
    control.set(*said)
    control.clear("1:action")
    assert control.words == [word for word in said if word != "1:action=1"]
    control.clear("1:")
    assert control.words == ["gpus=8", "node=node-1", "11:gone", "hangcalls"]
    control.clear()
    assert control.words == ["gpus=8", "node=node-1"]


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        pytest.param({"xid": 31}, ["2:xid=31@1", "seq=1"], id="an XID"),
        pytest.param({"xid": 79}, ["2:xid=79@1", "seq=1", "2:gone"], id="fallen off the bus"),
        pytest.param({"xid": 48}, ["2:xid=48@1", "seq=1", "2:action=1"], id="an XID that asks for a reset"),
        pytest.param({"lost": True}, ["2:gone"], id="lost"),
        pytest.param({"recovery_action": 4}, ["2:action=4"], id="recovery action"),
        pytest.param({"ecc": 3}, ["2:ecc=3"], id="memory errors"),
        pytest.param({"remap_pending": True}, ["2:remap=0,1,1,0"], id="remap pending"),
        pytest.param({"remap_failed": True}, ["2:remap=0,1,0,1"], id="remap failed"),
        pytest.param({"nvlink_down": 0}, ["2:nvlink=0"], id="link down"),
        pytest.param({"throttle": 0.5}, ["2:thermal=500000000"], id="throttled"),
        pytest.param({"word": "noevents"}, ["noevents"], id="any word"),
    ],
)
def test_each_fault_has_one_effect_but_xids_have_their_consequences(
    control: Control, fault: dict[str, float], words: list[str]
) -> None:
    control.inject(gpu=2, **fault)  # type: ignore[arg-type]
    assert control.words == words


def test_counters_go_on_counting(control: Control) -> None:
    for _ in range(2):
        control.inject(gpu=1, ecc=2, throttle=1)
    assert sorted(control.words) == ["1:ecc=4", "1:thermal=2000000000"]


@pytest.mark.parametrize("fault", [{"throttle": float("nan")}, {"throttle": -1}, {"ecc": -1}, {"gpu": -1, "ecc": 1}])
def test_a_fault_that_cannot_be_is_refused(control: Control, fault: dict[str, float]) -> None:
    with pytest.raises(LocalError):
        control.inject(**fault)  # type: ignore[arg-type]
    assert control.words == []


@pytest.mark.parametrize(
    "word", ["1:acton=4", "action=4", "1:gpus=8", "1:action", "1:gone=1", "1:action=x", "gpus=8 old", "", "-1:gone"]
)
def test_a_word_that_means_nothing_is_refused_and_changes_nothing(control: Control, word: str) -> None:
    control.set("gpus=8")
    with pytest.raises(LocalError):
        control.set("old", word)
    assert control.words == ["gpus=8"]


def test_a_fault_without_an_effect_is_refused(control: Control) -> None:
    with pytest.raises(LocalError, match="say what happens"):
        control.inject(gpu=1)


def test_nothing_but_the_control_file_is_left_behind(control: Control) -> None:
    control.set("gpus=8")
    assert [path.name for path in control.folder.iterdir()] == ["control"]

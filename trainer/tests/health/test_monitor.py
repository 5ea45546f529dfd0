"""The monitor's process against the real binding and a pretended driver: events, readings, and what is no fault."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from monitored import Monitored

from oarlock_api.contract.health import GpuVerdict
from oarlock_local import nvml, patience
from oarlock_trainer.health import messages
from oarlock_trainer.health.messages import News
from oarlock_trainer.health.pace import GpuPace

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


_ASKS_ALWAYS = """
from dataclasses import replace
from oarlock_trainer.health import monitor, watch
monitor.ROUND_SECONDS = watch.CONFIRM_SECONDS = 0.02
monitor.PROBES = tuple(replace(probe, every=0.02) for probe in monitor.PROBES)
monitor.main()
"""
"""The same monitor, which asks everything all the time: what it asks for once a minute, too."""


@pytest.fixture
def monitored(tmp_path: Path) -> Iterator[Monitored]:
    if reason := nvml.why_no_library():
        pytest.skip(reason)
    one = Monitored(tmp_path)
    yield one
    one.end()


def test_it_tells_which_gpus_it_watches_and_which_probes_there_are(monitored: Monitored) -> None:
    monitored.start()
    inventory = monitored.until(lambda line: line.news is News.INVENTORY)
    assert [(gpu.index, gpu.uuid) for gpu in inventory.gpus] == [(0, "GPU-00000000"), (1, "GPU-00000001")]
    probes = dict(monitored.until(lambda line: line.news is News.COVERAGE).probes)
    assert probes["recoveryAction"]
    assert probes["xid"]
    assert not probes["sram"]  # for root alone


def test_it_says_how_fast_gpus_run_once_it_is_asked_and_only_then(monitored: Monitored) -> None:
    monitored.gpus.set("gpus=2", "1:clock=1155", "1:reasons=32")
    monitored.watching()
    assert monitored.until(lambda line: line.news in (News.PACE, News.BEAT)).news is News.BEAT
    monitored.process.send_signal(messages.ASK_PACE)  # type: ignore[union-attr]
    assert monitored.until(lambda line: line.news is News.PACE).pace == (
        GpuPace(index=0, clock=1980, highest_clock=1980),
        GpuPace(index=1, clock=1155, highest_clock=1980, slowed_by=("sw_thermal_slowdown",)),
    )


def test_a_driver_that_knows_less_is_watched_with_what_it_has(monitored: Monitored) -> None:
    monitored.gpus.set("old")
    monitored.start()
    probes = dict(monitored.until(lambda line: line.news is News.COVERAGE).probes)
    assert probes["xid"]
    assert not probes["recoveryAction"]
    monitored.until(lambda line: line.news is News.BEAT)
    monitored.gpus.set("1:xid=48")
    assert monitored.symptom().xid == 48


@pytest.mark.parametrize(
    ("word", "verdict"),
    [
        pytest.param("1:xid=79", GpuVerdict.REPLACE_NODE, id="79"),
        pytest.param("1:xid=31", GpuVerdict.RESTART_PROCESS, id="31"),
        pytest.param("1:xid=63", GpuVerdict.HOLD, id="63"),
        pytest.param("1:xid=4711", GpuVerdict.RESTART_PROCESS, id="unknown"),
    ],
)
def test_an_xid_is_told_with_its_gpu(monitored: Monitored, word: str, verdict: GpuVerdict) -> None:
    monitored.watching()
    monitored.gpus.set(word)
    symptom = monitored.symptom()
    assert (symptom.verdict, symptom.probe, symptom.xid) == (verdict, "xid", int(word.rpartition("=")[2]))
    assert symptom.gpu is not None
    assert (symptom.gpu.uuid, symptom.gpu.serial) == ("GPU-00000001", "165001")


def test_a_symptom_tells_what_the_gpu_was_like_before(monitored: Monitored) -> None:
    monitored.gpus.set("1:correctable=7", "1:margin=20")
    monitored.watching()
    monitored.gpus.inject(gpu=1, xid=79)
    seen = monitored.symptom().readings
    assert (seen.ecc_errors_single, seen.ecc_errors_double, seen.temperature_celsius) == (7, 0, 67.0)
    assert seen.memory_used_percent is not None


def test_an_xid_that_means_nothing_is_not_told(monitored: Monitored) -> None:
    monitored.watching()
    monitored.gpus.set("1:xid=45")
    assert monitored.stays_silent_for(3)


def test_each_xid_is_told_once_and_the_second_one_too(monitored: Monitored) -> None:
    monitored.watching()
    for _ in range(2):
        monitored.gpus.inject(gpu=0, xid=13)
        assert monitored.symptom().xid == 13
    assert monitored.stays_silent_for(2)


def test_what_was_before_the_start_is_never_told(monitored: Monitored) -> None:
    monitored.gpus.set("0:xid=79", "0:ecc=400", "0:replays=100000")
    monitored.start()
    assert monitored.stays_silent_for(3)


@pytest.mark.parametrize(
    ("word", "probe", "verdict"),
    [
        pytest.param("1:action=1", "recoveryAction", GpuVerdict.REPLACE_NODE, id="recovery action"),
        pytest.param("1:gone", "lost", GpuVerdict.REPLACE_NODE, id="lost"),
        pytest.param("1:error=16", "lost", GpuVerdict.REPLACE_NODE, id="reset required"),
        pytest.param("1:ecc=1", "ecc", GpuVerdict.REPLACE_NODE, id="uncorrectable error"),
        pytest.param("1:remap=0,1,1,0", "rowRemap", GpuVerdict.HOLD, id="remap pending"),
        pytest.param("1:remap=0,1,0,1", "rowRemap", GpuVerdict.REPLACE_NODE, id="remap failed"),
        pytest.param("1:nvlink=3", "nvlink", GpuVerdict.REPLACE_NODE, id="link down"),
    ],
)
def test_what_no_event_tells_is_found_by_asking(
    monitored: Monitored, word: str, probe: str, verdict: GpuVerdict
) -> None:
    monitored.watching(_ASKS_ALWAYS)
    monitored.gpus.set(word)
    symptom = monitored.symptom()
    assert (symptom.probe, symptom.verdict) == (probe, verdict)
    assert symptom.gpu is not None
    assert symptom.gpu.index == 1


@pytest.mark.parametrize("word", ["1:error=999", "1:error=17", "0:error=4"])
def test_an_nvml_that_does_not_answer_is_no_gpus_fault(monitored: Monitored, word: str) -> None:
    """What a container says that has lost its devices, on a healthy node."""
    monitored.watching()
    monitored.gpus.set(word)
    assert monitored.stays_silent_for(3)


def test_a_gpu_that_answers_nothing_is_not_called_healthy_until_it_answers_again(monitored: Monitored) -> None:
    monitored.watching()
    monitored.gpus.set("1:error=999")
    why = monitored.until(lambda line: line.news is News.BLIND).why
    assert why.startswith("NVML does not answer for GPU 1 (GPU-00000001")
    assert "code 999" in why
    assert monitored.until(lambda line: line.news in (News.BEAT, News.BLIND)).news is News.BLIND
    monitored.gpus.clear("1:error")
    monitored.until(lambda line: line.news is News.BEAT)


def test_a_gpu_that_no_probe_knows_is_not_called_healthy(monitored: Monitored) -> None:
    monitored.gpus.set("1:error=3")
    monitored.start()
    assert "supports no probe of GPU 1" in monitored.until(lambda line: line.news in (News.BEAT, News.BLIND)).why


@pytest.mark.parametrize("probe", ["xid", "recoveryAction", "sram"])
def test_a_probe_is_supported_only_where_all_gpus_answer_it(monitored: Monitored, probe: str) -> None:
    monitored.gpus.set("0:sram", "1:error=3")  # GPU 0 answers all of them, GPU 1 none
    monitored.start()
    assert dict(monitored.until(lambda line: line.news is News.COVERAGE).probes)[probe] is False


def test_a_gpu_without_a_handle_is_lost_and_named_by_its_index(monitored: Monitored) -> None:
    monitored.gpus.set("1:lost")
    monitored.start()
    symptom = monitored.symptom()
    assert (symptom.probe, symptom.verdict) == ("lost", GpuVerdict.REPLACE_NODE)
    assert symptom.summary == "GPU 1 is lost: it has fallen off the bus"


def test_a_gpu_whose_handle_fails_once_is_watched_with_the_others(monitored: Monitored) -> None:
    monitored.gpus.set("1:once")
    monitored.start()
    monitored.until(lambda line: [gpu.index for gpu in line.gpus] == [0, 1])
    assert monitored.stays_silent_for(3)


def test_fewer_gpus_than_asked_for_are_nobodys_fault_and_not_called_healthy(monitored: Monitored) -> None:
    monitored.gpus.set("gpus=1")
    monitored.start()
    told = monitored.until(lambda line: line.news in (News.BEAT, News.BLIND))
    assert told.why == "NVML shows 1 GPUs of 2"
    monitored.gpus.inject(gpu=0, xid=79)
    assert monitored.symptom().xid == 79
    monitored.gpus.clear()
    monitored.gpus.set("gpus=2")
    monitored.until(lambda line: [gpu.index for gpu in line.gpus] == [0, 1])
    monitored.until(lambda line: line.news is News.BEAT)


_NO_TIME_TO_WAIT = "from oarlock_trainer.health import monitor; monitor.ROUND_SECONDS = 0.0; monitor.main()"


def test_events_are_heard_where_readings_take_all_the_time_and_before_what_they_explain(monitored: Monitored) -> None:
    """A contained error counts as uncorrectable too: its event must end the processes before the count takes the node."""
    monitored.start(program=_NO_TIME_TO_WAIT)
    monitored.until(lambda line: line.news is News.BEAT)
    monitored.gpus.set("1:ecc=1", "1:xid=94")
    symptom = monitored.symptom()
    assert (symptom.xid, symptom.verdict) == (94, GpuVerdict.RESTART_PROCESS)


def test_the_count_that_a_contained_error_leaves_behind_costs_no_node(monitored: Monitored) -> None:
    """The monitor outlives the ranks that start anew in their pod: what it read before them is no baseline any more."""
    monitored.watching(_ASKS_ALWAYS)
    monitored.gpus.set("1:ecc=1", "1:xid=94")
    assert (monitored.symptom().xid, monitored.stays_silent_for(25)) == (94, True)
    monitored.gpus.set("1:ecc=2")
    symptom = monitored.symptom()
    assert (symptom.probe, symptom.verdict) == ("ecc", GpuVerdict.REPLACE_NODE)
    assert "1 uncorrectable" in symptom.summary


def test_a_driver_without_quick_probes_confirms_a_loss_a_second_later(monitored: Monitored) -> None:
    """An old driver is asked every five seconds; a GPU in doubt in every round."""
    monitored.gpus.set("old", "noevents")
    monitored.watching()
    monitored.gpus.inject(gpu=1, lost=True)
    rounds = 0
    while (line := monitored.until(lambda line: line.news in (News.BEAT, News.SYMPTOM))).symptom is None:
        rounds += 1
    assert line.symptom.probe == "lost"
    assert rounds < 9


def test_without_events_the_readings_still_find_a_lost_gpu(monitored: Monitored) -> None:
    monitored.gpus.set("noevents")
    monitored.watching()
    monitored.gpus.inject(gpu=0, lost=True)
    assert monitored.symptom().probe == "lost"


@pytest.mark.parametrize(
    ("words", "why", "code"),
    [
        pytest.param(("gpus=4",), "NVML shows 4 GPUs for 2", 0, id="others' GPUs"),
        pytest.param(("noinit=999",), "NVML does not answer", None, id="NVML fails"),
    ],
)
def test_where_nothing_can_be_watched_it_says_why(
    monitored: Monitored, words: tuple[str, ...], why: str, code: int | None
) -> None:
    monitored.gpus.set(*words)
    monitored.start()
    assert why in monitored.until(lambda line: line.news is News.BLIND).why
    assert monitored.process is not None
    if code is not None:
        assert monitored.process.wait(patience.SECONDS) == code


def test_of_more_gpus_those_that_the_container_was_given_are_watched(monitored: Monitored) -> None:
    monitored.gpus.set("gpus=4")
    monitored.environment["NVIDIA_VISIBLE_DEVICES"] = "GPU-00000003,GPU-00000001"
    monitored.start()
    inventory = monitored.until(lambda line: line.news is News.INVENTORY)
    assert [gpu.index for gpu in inventory.gpus] == [1, 3]
    monitored.until(lambda line: line.news is News.BEAT)
    monitored.gpus.inject(gpu=0, xid=79)
    assert monitored.stays_silent_for(3)

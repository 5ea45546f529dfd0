"""The monitor's process against the real binding and a pretended driver: events, readings, and what is no fault."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from oarlock_api.contract.health import GpuVerdict
from oarlock_local import nvml
from oarlock_trainer.health import messages
from oarlock_trainer.health.messages import Line, News

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from oarlock_trainer.health.symptom import Symptom

_DEADLINE_SECONDS = 20.0


class Monitored:
    """A monitor over pretended GPUs."""

    def __init__(self, folder: Path) -> None:
        self.library = nvml.install(folder)
        self.gpus = nvml.Control(folder)
        self.gpus.set("gpus=2")
        self.environment = {**os.environ, "NVML_LIBRARY": str(self.library)}
        self._readable, self._writable = os.pipe()
        self._pending = b""
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, expected: int = 2) -> None:
        command = [sys.executable, "-m", "oarlock_trainer.health.monitor", "--told", str(self._writable)]
        command += ["--parent", str(os.getpid()), "--expected", str(expected)]
        self.process = subprocess.Popen(command, env=self.environment, pass_fds=[self._writable])

    def until(self, fits: Callable[[Line], bool]) -> Line:
        deadline = time.monotonic() + _DEADLINE_SECONDS
        while (left := deadline - time.monotonic()) > 0:
            *lines, self._pending = self._pending.split(b"\n")
            for number, line in enumerate(lines):
                if (said := messages.decode(line)) and fits(said):
                    self._pending = b"\n".join([*lines[number + 1 :], self._pending])
                    return said
            if select.select([self._readable], [], [], left)[0]:
                self._pending += os.read(self._readable, 65536)
        raise AssertionError("the monitor did not tell it in time")

    def watching(self) -> None:
        self.start()
        self.until(lambda line: line.news is News.BEAT)

    def symptom(self) -> Symptom:
        found = self.until(lambda line: line.news is News.SYMPTOM).symptom
        assert found is not None
        return found

    def stays_silent_for(self, rounds: int) -> bool:
        told = (self.until(lambda line: line.news in (News.BEAT, News.SYMPTOM)) for _ in range(rounds))
        return all(line.symptom is None for line in told)

    def end(self) -> None:
        if self.process:
            self.process.kill()
            self.process.wait()
        os.close(self._readable)
        os.close(self._writable)


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
    monitored.watching()
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
        assert monitored.process.wait(_DEADLINE_SECONDS) == code


def test_of_more_gpus_those_that_the_container_was_given_are_watched(monitored: Monitored) -> None:
    monitored.gpus.set("gpus=4")
    monitored.environment["NVIDIA_VISIBLE_DEVICES"] = "GPU-00000003,GPU-00000001"
    monitored.start()
    inventory = monitored.until(lambda line: line.news is News.INVENTORY)
    assert [gpu.index for gpu in inventory.gpus] == [1, 3]
    monitored.until(lambda line: line.news is News.BEAT)
    monitored.gpus.inject(gpu=0, xid=79)
    assert monitored.stays_silent_for(3)

"""The pretended NVML says through unmodified nvidia-ml-py what its words tell it to say."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from oarlock_local import nvml, patience
from oarlock_local.errors import BuildError

from .nvml_program import ask

LOST, NOT_SUPPORTED, NO_PERMISSION, TIMED_OUT, NO_FUNCTION, OTHER_VERSION = 15, 3, 4, 10, 13, 25


@pytest.fixture
def library(tmp_path: Path) -> Path:
    if reason := nvml.why_no_library():
        pytest.skip(reason)
    return nvml.install(tmp_path)


def value(library: Path, expression: str, words: str | None = None) -> Any:
    return ask(library, f"answer = {expression}", words)


# The name of a probe, what reads it, what a healthy GPU says, a word, and what GPU 1 says then.
PROBES = [
    ("recovery action", "field(1, 230)", 0, "1:action=4", 4),
    ("power limit", "field(1, 74)", 0, "1:powercap=7", 7),
    ("software thermal slowdown", "[field(1, 75), field(1, 269)]", [0, 0], "1:swthermal=7", [7, 7]),
    ("thermal slowdown", "field(1, 270)", 0, "1:thermal=5000000000", 5_000_000_000),
    ("power brake", "field(1, 271)", 0, "1:powerbrake=7", 7),
    ("remapped rows", "nvmlDeviceGetRemappedRows(gpu(1))", [0, 0, 0, 0], "1:remap=2,3,1,0", [2, 3, 1, 0]),
    ("remapped rows' fields", "[field(1, n) for n in range(142, 146)]", [0] * 4, "1:remap=2,3,0,1", [2, 3, 0, 1]),
    ("uncorrectable errors", "nvmlDeviceGetTotalEccErrors(gpu(1), 1, 0)", 0, "1:ecc=3", 3),
    ("corrected errors", "nvmlDeviceGetTotalEccErrors(gpu(1), 0, 0)", 0, "1:correctable=3", 3),
    (
        "errors by place",
        "[nvmlDeviceGetMemoryErrorCounter(gpu(1), 1, 0, place) for place in (0, 2)]",
        [0, 0],
        "1:ecc=3",
        [0, 3],
    ),
    ("PCIe replays", "[nvmlDeviceGetPcieReplayCounter(gpu(1)), field(1, 94)]", [0, 0], "1:replays=9", [9, 9]),
    ("PCIe generation", "nvmlDeviceGetCurrPcieLinkGeneration(gpu(1))", 5, "1:pciegen=1", 1),
    ("PCIe width", "nvmlDeviceGetCurrPcieLinkWidth(gpu(1))", 16, "1:pciewidth=8", 8),
    ("best PCIe generation", "nvmlDeviceGetMaxPcieLinkGeneration(gpu(1))", 5, "1:pciegen=1", 5),
    ("best PCIe width", "nvmlDeviceGetMaxPcieLinkWidth(gpu(1))", 16, "1:pciewidth=8", 16),
    (
        "NVLinks",
        "[link for link in range(18) if not nvmlDeviceGetNvLinkState(gpu(1), link)]",
        [],
        "1:nvlink=7",
        [7],
    ),
    ("NVLink errors", "nvmlDeviceGetNvLinkErrorCounter(gpu(1), 17, 3)", 0, "1:nvlinkerrors=5", 5),
    ("NVLink errors' fields", "[field(1, n, 17) for n in (161, 162, 163)]", [0] * 3, "1:nvlinkerrors=5", [5] * 3),
    ("margin", "nvmlDeviceGetMarginTemperature(gpu(1))", 40, "1:margin=-2", -2),
    ("temperature", "nvmlDeviceGetTemperature(gpu(1), 0)", 47, "1:margin=-2", 89),
    ("temperature, newer call", "nvmlDeviceGetTemperatureV(gpu(1), 0)", 47, "1:margin=-2", 89),
    ("memory's temperature", "field(1, 82)", 57, "1:margin=-2", 99),
    ("clocks", "nvmlDeviceGetCurrentClocksEventReasons(gpu(1))", 0, "1:reasons=64", 64),
    ("fabric", "fabric(c_nvmlGpuFabricInfo_v3_t).state", 3, "1:fabric=2/0/1", 2),
    ("fabric's status", "fabric(c_nvmlGpuFabricInfo_v2_t).status", 0, "1:fabric=3/16/1", 16),
    ("fabric's health", "fabric(c_nvmlGpuFabricInfo_v3_t).healthSummary", 1, "1:fabric=3/0/2", 2),
    ("fabric's route", "fabric(c_nvmlGpuFabricInfo_v2_t).healthMask >> 4 & 3", 2, "1:fabric=3/0/2", 1),
]


def test_a_healthy_gpu_has_counted_nothing_and_a_word_changes_that_one_probe(library: Path) -> None:
    control = nvml.Control(library.parent)
    control.set("gpus=8")
    asked = f"answer = [{', '.join(probe[1] for probe in PROBES)}]"
    assert ask(library, asked) == [probe[2] for probe in PROBES]
    program = f"""
        answer = []
        for word, expression in {[(probe[3], probe[1]) for probe in PROBES]!r}:
            control.set(word)
            answer.append(eval(expression))
            control.clear(word.partition("=")[0])
    """
    assert ask(library, program) == [probe[4] for probe in PROBES]


def test_faults_of_one_gpu_are_not_its_neighbours(library: Path) -> None:
    assert value(library, "[field(index, 230) for index in (0, 1, 10, 11)]", "gpus=12 1:action=4") == [0, 4, 0, 0]


def test_temperature_limits_are_signed_margins(library: Path) -> None:
    assert value(library, "[field(1, 193), field(1, 194)]") == [-8, -2]


def test_fields_nobody_pretends_and_links_that_are_not_there_say_so_each_for_itself(library: Path) -> None:
    assert value(library, "[field(1, 500), field(1, 161, 18)]") == [f"error {NOT_SUPPORTED}", "error 2"]


def test_sram_status_is_a_secret_until_told(library: Path) -> None:
    program = """
        status = c_nvmlEccSramErrorStatus_v1_t()
        answer = [code(nvmlDeviceGetSramEccErrorStatus, gpu(index), byref(status)) for index in (0, 1)]
        answer.append(status.bThresholdExceeded)
    """
    assert ask(library, program, "1:sram") == [NO_PERMISSION, 0, 1]


def test_gpus_of_two_nodes_have_other_names_and_are_found_by_them(library: Path) -> None:
    program = """
        names = nvmlDeviceGetUUID(gpu(1)), nvmlDeviceGetSerial(gpu(1))
        answer = [*names, nvmlDeviceGetIndex(nvmlDeviceGetHandleByUUID(names[0]))]
        answer.append(code(nvmlDeviceGetHandleByUUID, "GPU-of-another"))
    """
    assert ask(library, program, "node=node-7") == ["GPU-node-7-00000001", "node-7-165001", 1, 6]
    assert ask(library, program, "") == ["GPU-00000001", "165001", 1, 6]


def test_an_idle_gpu_and_its_driver_describe_themselves(library: Path) -> None:
    program = """
        used = nvmlDeviceGetUtilizationRates(gpu(1))
        answer = [nvmlDeviceGetModuleId(gpu(1)), nvmlDeviceGetPowerUsage(gpu(1)), used.gpu, used.memory]
        answer.append(nvmlSystemGetDriverVersion())
    """
    assert ask(library, program) == [1, 70000, 0, 0, "580.65.06"]


def test_words_come_from_the_environment_before_the_control_file_and_are_read_anew(library: Path) -> None:
    nvml.Control(library.parent).set("gpus=8")
    assert value(library, "nvmlDeviceGetCount()") == 8
    assert value(library, "nvmlDeviceGetCount()", "gpus=3") == 3
    program = """
        import os
        answer = []
        for words in ("gpus=1", "gpus=4"):
            os.environ["FAKE_NVML"] = words
            answer.append(nvmlDeviceGetCount())
        del os.environ["FAKE_NVML"]
        control.set("gpus=5")
        answer.append(nvmlDeviceGetCount())
    """
    assert ask(library, program) == [1, 4, 5]


def test_an_event_reaches_every_set_that_was_registered_for_it_once(library: Path) -> None:
    program = """
        first, second = registered(), registered()
        other_type, other_gpu = registered(nvmlEventTypeGpuRecoveryAction), registered(index=0)
        control.inject(gpu=1, xid=31)
        late = registered()
        control.set("1:event=32768/4")
        answer = {
            "first": [wait(first), wait(first)],
            "second": [wait(second), wait(second)],
            "other type": [wait(other_type), wait(other_type)],
            "others": [wait(other_gpu), wait(late)],
        }
    """
    assert ask(library, program) == {
        "first": [[1, 8, 31], TIMED_OUT],
        "second": [[1, 8, 31], TIMED_OUT],
        "other type": [[1, 0x8000, 4], TIMED_OUT],
        "others": [TIMED_OUT, TIMED_OUT],
    }


def test_events_of_several_gpus_and_types_come_in_their_order(library: Path) -> None:
    program = """
        events = registered(nvmlEventTypeXidCriticalError | nvmlEventTypeGpuUnavailableError, index=0)
        nvmlDeviceRegisterEvents(gpu(1), nvmlEventTypeXidCriticalError, events)
        control.set("1:xid=31", "0:event=16384/0", "0:xid=43", "1:xid=31")
        answer = [wait(events) for _ in range(5)]
    """
    assert ask(library, program) == [[1, 8, 31], [0, 0x4000, 0], [0, 8, 43], [1, 8, 31], TIMED_OUT]


def test_events_that_are_cleared_away_do_not_hide_later_ones(library: Path) -> None:
    program = """
        events = registered()
        control.inject(gpu=1, xid=31)
        answer = [wait(events)]
        control.clear()
        control.inject(gpu=1, xid=43)
        answer += [wait(events), wait(events)]
    """
    assert ask(library, program) == [[1, 8, 31], [1, 8, 43], TIMED_OUT]


def test_a_wait_ends_when_the_event_happens(library: Path) -> None:
    program = """
        import threading
        events = registered()
        threading.Timer(0.2, lambda: control.inject(gpu=1, xid=31)).start()
        answer = wait(events, 50_000)
    """
    assert ask(library, program) == [1, 8, 31]


def test_an_unsupported_type_registers_nothing(library: Path) -> None:
    program = """
        events = nvmlEventSetCreate()
        both = nvmlEventTypeXidCriticalError | nvmlEventTypePowerSourceChange
        answer = [code(nvmlDeviceRegisterEvents, gpu(1), both, events)]
        control.inject(gpu=1, xid=31)
        answer.append(wait(events))
        answer.append(code(nvmlDeviceRegisterEvents, gpu(1), nvmlDeviceGetSupportedEventTypes(gpu(1)), events))
        answer.append(code(nvmlEventSetFree, events))
    """
    assert ask(library, program) == [NOT_SUPPORTED, TIMED_OUT, 0, 0]


def test_a_driver_without_events_says_so(library: Path) -> None:
    program = """
        answer = [code(nvmlEventSetCreate), code(nvmlDeviceGetSupportedEventTypes, gpu(1))]
    """
    assert ask(library, program, "noevents") == [NOT_SUPPORTED] * 2


def test_an_old_driver_lacks_what_came_with_r570_and_later(library: Path) -> None:
    program = """
        answer = [field(1, 230), field(1, 269), field(1, 74), hex(nvmlDeviceGetSupportedEventTypes(gpu(1)) >> 8)]
        answer += [code(nvmlDeviceGetMarginTemperature, gpu(1)), code(nvmlDeviceGetTemperatureV, gpu(1), 0)]
        answer += [code(fabric, c_nvmlGpuFabricInfo_v3_t), code(fabric, c_nvmlGpuFabricInfo_v2_t)]
    """
    unknown = f"error {NOT_SUPPORTED}"
    assert ask(library, program, "old") == [unknown, unknown, 0, "0x3d", NO_FUNCTION, NO_FUNCTION, OTHER_VERSION, 0]


def test_a_gpu_that_fell_off_the_bus_tells_its_xid_and_then_only_that_it_is_lost(library: Path) -> None:
    program = """
        events, lost, index, version = registered(), gpu(1), c_uint(), c_nvmlGpuFabricInfo_v3_t()
        control.inject(gpu=1, xid=79)
        answer = [wait(events, 50_000), wait(events, 50_000)]
        questions = [
            nvmlDeviceGetSerial, nvmlDeviceGetName, nvmlDeviceGetMigMode, nvmlDeviceGetMemoryInfo,
            nvmlDeviceGetRemappedRows, nvmlDeviceGetPcieReplayCounter, nvmlDeviceGetMarginTemperature,
            nvmlDeviceGetCurrentClocksEventReasons, nvmlDeviceGetPowerUsage, nvmlDeviceGetUtilizationRates,
            nvmlDeviceGetCurrPcieLinkWidth, nvmlDeviceGetSupportedEventTypes, nvmlDeviceGetComputeRunningProcesses,
        ]
        said = {code(question, lost) for question in questions}
        said |= {code(nvmlDeviceGetFieldValues, lost, [230]), code(nvmlDeviceGetTotalEccErrors, lost, 1, 0)}
        said |= {code(nvmlDeviceGetNvLinkState, lost, 0), code(nvmlDeviceGetGpuFabricInfoV, lost, byref(version))}
        said |= {code(nvmlDeviceRegisterEvents, lost, 8, events)}
        answer += [sorted(said), nvmlDeviceGetUUID(lost), code(nvmlDeviceGetSerial, gpu(0))]
    """
    assert ask(library, program) == [[1, 8, 79], LOST, [LOST], "GPU-00000001", 0]


def test_questions_hang_until_the_word_is_taken_back(library: Path) -> None:
    program = """
        import threading
        device, answered = gpu(1), threading.Event()
        control.set("hangcalls")
        threading.Thread(target=lambda: (nvmlDeviceGetPowerUsage(device), answered.set()), daemon=True).start()
        answer = [answered.wait(0.3), nvmlDeviceGetCount()]
        control.clear("hangcalls")
        answer.append(answered.wait(60))
    """
    assert ask(library, program) == [False, 2, True]


def test_the_library_is_built_once_and_by_two_at_once_too(tmp_path: Path) -> None:
    if reason := nvml.why_no_library():
        pytest.skip(reason)
    environ = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    build = [sys.executable, "-c", "from oarlock_local import nvml; print(nvml.build())"]
    both = [subprocess.Popen(build, env=environ, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    [path] = {process.communicate(timeout=patience.SECONDS)[0].strip() for process in both}
    assert [process.returncode for process in both] == [0, 0]
    assert path.startswith(str(tmp_path))
    before = Path(path).stat().st_mtime_ns
    assert nvml.build(environ) == Path(path)
    assert Path(path).stat().st_mtime_ns == before
    assert [entry.name for entry in Path(path).parent.iterdir()] == [nvml.LIBRARY]


def test_without_a_c_compiler_the_reason_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    environ = {"XDG_CACHE_HOME": str(tmp_path)}
    assert "no C compiler" in (nvml.why_no_library(environ) or "")
    with pytest.raises(BuildError, match="no C compiler"):
        nvml.build(environ)

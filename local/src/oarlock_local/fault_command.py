"""What `oarlock-local fault` takes and explains: the faults, and what can happen to a GPU."""

import argparse
from collections.abc import Mapping
from typing import Any, cast

from oarlock_local.faults import FAULTS
from oarlock_local.gpus import FOLDER
from oarlock_local.nvml import LIBRARY, GpuFault
from oarlock_local.nvml.fault import ASK_FOR_RESET, FALLEN_OFF_THE_BUS
from oarlock_local.nvml.words import OF_A_GPU, OF_THE_MACHINE, Meaning

_GPUS = f"""\
Pods of a cluster with --gpus ask NVML about these GPUs; NVML_LIBRARY leads to {FOLDER / LIBRARY}.
One option has one effect, except for some XIDs. A reboot of the node mends all."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give the parser its arguments and its list of faults."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = "\n".join(
        [
            *("faults:", *_columns({f"{name} {fault.target.value}": fault.help for name, fault in FAULTS.items()})),
            *("", "words of GPU I:", *_meanings("I:", OF_A_GPU)),
            *("", "words of a node:", *_meanings("", OF_THE_MACHINE)),
        ]
    )
    parser.add_argument("name")
    parser.add_argument("kind", choices=FAULTS, metavar="FAULT")
    parser.add_argument("target", nargs="?", default="", help="a node, or a container")
    _add_gpu_options(parser.add_argument_group("what happens to a GPU", _GPUS))


def of_a_gpu(given: argparse.Namespace) -> GpuFault:
    """What the options say that happens to a GPU."""
    said = {option: getattr(given, option) for option in GpuFault.__annotations__}
    return cast("GpuFault", {option: value for option, value in said.items() if value is not None})


def _add_gpu_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--gpu", type=int, metavar="I", help="which, from 0 on; default: 0, and all for mend-gpu")
    effect = group.add_mutually_exclusive_group()
    asking = ", ".join(str(xid) for xid in ASK_FOR_RESET)
    xid = f"an XID event; {FALLEN_OFF_THE_BUS} has --lost as well, and {asking} have --recovery-action 1"
    effect.add_argument("--xid", type=int, metavar="N", help=xid)
    effect.add_argument("--lost", **_flag("it says nothing more but that it is lost"))
    effect.add_argument(
        "--recovery-action", type=int, metavar="A", help="1 reset, 2 reboot, 3 drain, 4 drain and reset"
    )
    effect.add_argument("--ecc", type=int, metavar="N", help="N uncorrectable memory errors more")
    effect.add_argument("--remap-pending", **_flag("a memory row waits for a reset to be remapped"))
    effect.add_argument("--remap-failed", **_flag("a memory row could not be remapped"))
    effect.add_argument("--nvlink-down", type=int, metavar="L", help="NVLink L, of 0 to 17, is down")
    effect.add_argument("--throttle", type=float, metavar="SECONDS", help="so much more hardware slowdown for heat")
    effect.add_argument("--word", metavar="WORD", help="any of the words below, as 1:margin=-2 for GPU 1")


def _flag(text: str) -> Any:
    return {"action": "store_const", "const": True, "help": text}


def _meanings(prefix: str, words: Mapping[str, Meaning]) -> list[str]:
    return _columns({f"{prefix}{name}{'=...' if word.value else ''}": word.help for name, word in words.items()})


def _columns(rows: Mapping[str, str]) -> list[str]:
    width = max(len(left) for left in rows)
    return [f"  {left:{width}}  {right}" for left, right in rows.items()]

"""The words that tell the pretended NVML what to pretend: what each means, and how a list of them is changed.

A word is `name`, `name=value`, or the same of one GPU: `1:name=value`. A word replaces the one of its name. Only events
(`1:xid=79`, `1:event=TYPE/DATA`) pile up: each gets a number, `@SEQ`, that rises by one with each, and that never
falls, because whoever waits for events remembers the last number. Everything here is pure.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from oarlock_local.errors import LocalError


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a word says, and the form of its value; "" where it has none."""

    value: str
    help: str


_NUMBER = r"\d+"

OF_THE_MACHINE = {
    "gpus": Meaning(_NUMBER, "how many there are (2)"),
    "node": Meaning(r"[-.a-z0-9]+", "becomes part of UUIDs and serials, so that they differ from other nodes'"),
    "seq": Meaning(_NUMBER, "the number of the last event"),
    "old": Meaning("", "a driver (R550) without recovery actions, event types from 0x4000 on, and newer calls"),
    "noinit": Meaning(_NUMBER, "nvmlInit fails with this error"),
    "hang": Meaning("", "nvmlInit does not return"),
    "crash": Meaning("", "nvmlInit ends the process"),
    "hangcalls": Meaning("", "no question to a GPU returns"),
    "noevents": Meaning("", "events are not supported"),
}

OF_A_GPU = {
    "lost": Meaning("", "its handle can't be had any more"),
    "gone": Meaning("", "its handle can be had, but every question to it, and a wait for its events, says it is lost"),
    "once": Meaning("", "as lost, but only until the GPUs are counted again"),
    "error": Meaning(_NUMBER, "every question to it fails with this error"),
    "action": Meaning(_NUMBER, "its recovery action"),
    "used": Meaning(_NUMBER, "MiB of its memory in use"),
    "freed": Meaning(_NUMBER, "as used, but only until the GPUs are counted again"),
    "process": Meaning("", "a compute process is on it"),
    "mig": Meaning("", "it is partitioned"),
    "xid": Meaning(r"\d+(@\d+)?", "an event: this XID"),
    "event": Meaning(r"\d+/\d+(@\d+)?", "an event of this type with this data, both decimal"),
    "ecc": Meaning(_NUMBER, "uncorrectable memory errors since the boot"),
    "correctable": Meaning(_NUMBER, "corrected memory errors since the boot"),
    "remap": Meaning(r"\d+,\d+,[01],[01]", "rows remapped: correctable, uncorrectable, one is pending, one failed"),
    "sram": Meaning("", "its SRAM has passed the threshold of errors, and everybody may know"),
    "nvlink": Meaning(_NUMBER, "this NVLink is down (of 0 to 17)"),
    "nvlinkerrors": Meaning(_NUMBER, "replays, recoveries and CRC errors, this many each, of every NVLink"),
    "thermal": Meaning(_NUMBER, "ns of hardware slowdown for heat so far"),
    "powerbrake": Meaning(_NUMBER, "ns of hardware slowdown by the power brake so far"),
    "swthermal": Meaning(_NUMBER, "ns of the driver's slowdown for heat so far"),
    "powercap": Meaning(_NUMBER, "ns of the driver's slowdown at the power limit so far"),
    "reasons": Meaning(_NUMBER, "why its clocks are low right now: NVML's bits, decimal"),
    "clock": Meaning(r"\d+", "MHz of the GPU's SMs (1980, which is the highest)"),
    "margin": Meaning(r"-?\d+", "degrees left until the temperature limit (40)"),
    "pciegen": Meaning(_NUMBER, "the PCIe generation that its link runs at (5)"),
    "pciewidth": Meaning(_NUMBER, "the PCIe lanes that its link runs with (16)"),
    "replays": Meaning(_NUMBER, "PCIe replays"),
    "fabric": Meaning(r"\d+/\d+/\d+", "state, status and health summary of its fabric (3/0/1)"),
}

_KEPT = ("gpus", "node", "seq")
"""What is no fault: which machine it is, and how many events it has seen."""
_EVENTS = ("xid", "event")
_WORD = re.compile(r"((?P<gpu>\d+):)?(?P<name>[a-z]+)(=(?P<value>\S+))?")


def name_of(word: str) -> str:
    """What another word must share to replace this one: `1:action` of `1:action=4`."""
    return word.partition("=")[0]


def value_of(words: Iterable[str], name: str) -> str | None:
    """The value of the word of that name; None where it is missing."""
    return next((word.partition("=")[2] for word in words if name_of(word) == name), None)


def with_words(words: Sequence[str], new: Iterable[str]) -> list[str]:
    """The words after new ones were said. Raises LocalError for one that means nothing."""
    after = list(words)
    for word in new:
        name, is_event = _checked(word)
        others = [other for other in after if name_of(other) != name]
        after = _with_event(after, word) if is_event else [*others, word]
    return after


def without(words: Iterable[str], names: Sequence[str]) -> list[str]:
    """The words without those of these names; `1:` names all of GPU 1, and no name at all every fault."""
    if not names:
        return [word for word in words if name_of(word) in _KEPT]
    return [word for word in words if not any(_is_named(word, name) for name in names)]


def _is_named(word: str, name: str) -> bool:
    return word.startswith(name) if name.endswith(":") else name_of(word) == name


def _checked(word: str) -> tuple[str, bool]:
    """The word's name, and whether it is an event."""
    match = _WORD.fullmatch(word)
    known = (OF_A_GPU if match["gpu"] else OF_THE_MACHINE).get(match["name"]) if match else None
    if match is None or known is None:
        raise LocalError(
            f"{word!r} means nothing to the pretended NVML. Say NAME=VALUE, of a machine: {', '.join(OF_THE_MACHINE)}; "
            f"or GPU:NAME=VALUE, of a GPU: {', '.join(OF_A_GPU)}."
        )
    if not re.fullmatch(known.value, match["value"] or ""):
        wanted = f"a value like {known.value}" if known.value else "no value"
        raise LocalError(f"{word!r}: {match['name']} ({known.help}) takes {wanted}.")
    return name_of(word), match["name"] in _EVENTS


def _with_event(words: Sequence[str], word: str) -> list[str]:
    last = int(value_of(words, "seq") or 0)
    bare, _, said = word.partition("@")
    number = int(said) if said else last + 1
    if number <= last:
        raise LocalError(f"{word!r}: {last} events have been already. Leave the number away and it gets the next one.")
    return [*(other for other in words if name_of(other) != "seq"), f"{bare}@{number}", f"seq={number}"]

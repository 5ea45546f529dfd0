"""The page of a day with a GPU, in Markdown, from what the slices left. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Found = Mapping[str, Any]
UNTRIED = (
    "the arithmetic of any kernel, and what a compiled one takes: milliseconds, memory and MFU of every contender",
    "that the driver accepts the events and fields that the monitor asks it for, and tells of XIDs to who is not root",
    "pinned memory, copies on a stream of their own, and how long a checkpoint holds a step up",
    "NCCL beyond its version: groups of one rank and of many, bus bandwidth, what it finds of InfiniBand",
    "8-bit AdamW's kernels, DeepSpeed's questions to NVML after a fork, one process for each GPU",
    "whether the planner's memory holds",
)
"""What no machine without a GPU can show, whatever stands in for the driver."""


def page(
    asked: Sequence[tuple[str, str, float]],
    slices: Mapping[str, Found],
    versions: Mapping[str, Sequence[str]],
    found: Mapping[str, Found],
) -> str:
    """All that is known.

    `asked`: name, question and bound in minutes of every slice, in order. `slices`: of those that had a turn, `state`,
    `seconds` and `why`. `versions`: here and in uv.lock, by package. `found`: what scripts wrote, by the slice's file.
    """
    parts = [
        "# A day with a GPU",
        "`make gpu-day`. Measured, but for the columns that say model.",
        _slices(asked, slices),
    ]
    for name, title, section in _SECTIONS:
        if known := found.get(name):
            parts += [f"## {title}", _told(section, known)]
    if versions:
        rows = [(name, here, lock or "") for name, (here, lock) in sorted(versions.items())]
        parts += ["## Versions", table(("package", "here", "uv.lock"), rows)]
    if not _has_gpu(found):
        parts += [
            "## Not tried, for want of a GPU",
            "The slices above ran to where they first ask a device for something. What only a device can show:",
            "\n".join(f"- {one}" for one in UNTRIED),
        ]
    return "\n\n".join(parts) + "\n"


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table. Cells are shown as str shows them, on one line."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(_cell, line)) + " |" for line in lines)


def _cell(value: object) -> str:
    return str(value).replace("|", "/").replace("\n", " ")


def _has_gpu(found: Mapping[str, Found]) -> bool:
    gpus = found.get("machine", {}).get("GPUs", "none")
    return not str(gpus).startswith("none")


def _told(section: Callable[[Found], str], known: Found) -> str:
    """A file that is not what it was may cost its section, and no other."""
    try:
        return section(known)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        return f"What was found is not what this page knows: {error!r}."


def _slices(asked: Sequence[tuple[str, str, float]], slices: Mapping[str, Found]) -> str:
    rows = []
    for name, asks, minutes in asked:
        one = slices.get(name, {"state": "not begun", "seconds": 0.0, "why": ""})
        rows.append((name, asks, one["state"], f"{one['seconds']:.0f} of {minutes * 60:.0f}", one["why"]))
    return table(("slice", "asks", "state", "seconds", "why"), rows)


def _machine(found: Found) -> str:
    return table(("what", "value"), list(found.items()))


def _trains(found: Found) -> str:
    rows = [
        (
            name,
            one["code"],
            f"{one['steps']}, from {one['first step']}" if one["steps"] else "none",
            " -> ".join(f"{loss:.3f}" for loss in one.get("loss", ())),
            f"{one.get('memory, GB', 0.0):.2f}",
            f"{one['seconds']:.0f}",
            one["said"],
        )
        for name, one in found.items()
    ]
    head = ("run", "exit code", "steps", "loss", "memory, GB", "seconds", "the agent's last words")
    about = "`bench/gpu_trains.py`: tiny random weights; the second attempt is to resume: 20 steps, from 21."
    return f"{about}\n\n{table(head, rows)}"


def _steps(found: Found) -> str:
    facts = found["facts"]
    rows = [
        (name, one["error"], "", "", "", "")
        if "error" in one
        else (
            name,
            f"{one['ms_per_image']:.1f}",
            "unknown" if one["mfu"] is None else f"{one['mfu']:.1%}",
            f"{one['peak_gb']:.1f}",
            f"{one['all_blocks_ms_model']:.0f}",
            one["attention"],
        )
        for name, one in found["results"].items()
    ]
    head = ("contender", "ms per image", "MFU", "peak, GB", "ms with all 57 blocks (model)", "attention")
    about = (
        f"`bench/gpu_step.py`: {3 * facts['double']} blocks of FLUX.1 of {facts['pixels']} pixels, batch {facts['batch']}, "
        f"medians of {facts['rounds']} steps, on one {facts['gpu']}, torch {facts['torch']}."
    )
    kernels = [
        f"{name}: {'; '.join(one['kernels'][:4])}" for name, one in found["results"].items() if one.get("kernels")
    ]
    return "\n\n".join((about, table(head, rows), "\n".join(f"- {one}" for one in kernels))).rstrip()


def _checkpoint(found: Found) -> str:
    rounds = found["rounds"]
    figures = list(next(iter(rounds.values()))[0])
    rows = [
        (name, len(measured), *(f"{statistics.median(one[figure] for one in measured):.3f}" for figure in figures))
        for name, measured in rounds.items()
    ]
    size, ranks = f"{found['parameters'] / 1e6:.0f} million parameters", found["ranks"]
    about = f"`bench/checkpoint.py --gpu`: {size}, {ranks} ranks; medians."
    return f"{about}\n\n{table(('way', 'rounds', *figures), rows)}"


def _network(found: Found) -> str:
    if "told" in found:
        return str(found["told"])
    rows = [
        ("ranks, nodes", f"{found['ranks']}, {found['nodes']}"),
        (f"all-reduce of {found['mebibytes']} MiB", f"{found['all_reduce']:.2f} ms"),
        ("bus bandwidth", f"{found['bus_bandwidth']:.1f} GB/s"),
        ("NCCL's network between nodes", ", ".join(sorted(set(found["networks"].values()))) or "unknown"),
        ("ring, slowest node", f"{max(found['ring'].values()):.2f} ms"),
    ]
    return f"`bench/gpu_network.py`.\n\n{table(('what', 'value'), rows)}"


def _tests(found: Found) -> str:
    rows = [
        (
            name,
            one["name"],
            _LOUD.get(one["result"], one["result"]),
            one["found"],
            one["seconds"],
        )
        for name, tests in found["results"].items()
        for one in tests
    ]
    return table(("file", "test", "result", "found", "seconds"), rows)


_LOUD = {"failed": "**failed**"}
_SECTIONS: tuple[tuple[str, str, Callable[[Found], str]], ...] = (
    ("machine", "Machine", _machine),
    ("trains", "Training", _trains),
    ("step", "A training step", _steps),
    ("checkpoint", "A checkpoint", _checkpoint),
    ("network", "The exchange between GPUs", _network),
    ("tests", "Tests of the mark gpu", _tests),
)

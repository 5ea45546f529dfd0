"""What a GPU is asked, in the order of its worth: the slices of `make gpu-day`."""

from __future__ import annotations

from dataclasses import dataclass

JOB = (
    *("torch", "deepspeed", "diffusers", "transformers", "accelerate", "safetensors", "numpy", "pyarrow", "PIL"),
    *("pydantic", "yaml", "xxhash", "psutil", "boto3", "pynvml"),
)
"""What a training job imports; and its tests:"""
TESTS = (*JOB, "pytest", "hypothesis", "skimage")


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """One question to a GPU. `program`: a script below bench/ and its arguments; `result`: the file that it writes."""

    name: str
    asks: str
    minutes: float
    program: tuple[str, ...]
    result: str
    needs: tuple[str, ...] = JOB
    """Imports without which it is skipped."""


def _step(name: str, asks: str, minutes: float, *contenders: str) -> Slice:
    program = ("gpu_step.py", "--only", *contenders)
    return Slice(name=name, asks=asks, minutes=minutes, program=program, result="gpu-step.json")


def _tests(name: str, asks: str, minutes: float, *files: str) -> Slice:
    program = ("gpu_tests.py", *files)
    return Slice(name=name, asks=asks, minutes=minutes, program=program, result="gpu-tests.json", needs=TESTS)


SLICES = (
    Slice(
        name="machine",
        asks="what is there, and do driver and torch find it",
        minutes=1,
        program=("gpu_machine.py",),
        result="gpu-machine.json",
        needs=("torch",),
    ),
    Slice(
        name="trains",
        asks="does a job train as in a pod, under the agent: on one GPU, then on all; does it resume",
        minutes=5,
        program=("gpu_trains.py",),
        result="gpu-trains.json",
    ),
    _tests(
        "findings",
        "what a review found: waits for the whole device, 8-bit AdamW beyond 2^31 elements, CUDA before a fork",
        5,
        "engine/test_engine_on_gpus.py",
        "ranks/test_rank_host_cuda.py",
    ),
    _step(
        "block", "milliseconds and kernels of FLUX.1's blocks", 8, "diffusers, eager", "a job, eager", "a job, compiled"
    ),
    _step(
        "attention",
        "which kernel of attention is fastest, and which there are",
        6,
        *(f"a job, compiled, {kernel}" for kernel in ("SDPA", "CuDNN", "Flash2", "Flash3")),
    ),
    _step(
        "memory",
        "what lean blocks, a mask and recomputed blocks take",
        8,
        *(f"a job, compiled, {way}" for way in ("lean", "lean, masked", "half recomputed", "all recomputed")),
        *(f"a job, eager, {way}" for way in ("half recomputed", "all recomputed")),
    ),
    _tests(
        "plan",
        "a fine-tune of the real width: is its memory the planner's, is nothing compiled twice",
        8,
        "runs/test_fine_tune_on_gpus.py",
        "plan/test_activations.py",
    ),
    _step(
        "compile",
        "what other modes gain",
        8,
        "a job, compiled, float8",
        "diffusers, eager, all recomputed",
        "a job, max-autotune",  # the last one: what takes longer than the slice would keep others from their turn
    ),
    Slice(
        name="checkpoint",
        asks="how long training stands still for a checkpoint of a billion parameters",
        minutes=6,
        program=("checkpoint.py", "--gpu", "--parameters", "1e9", "--rounds", "3"),
        result="gpu-checkpoint.json",
    ),
    _tests("xid", "does the driver tell of XIDs to who is not root", 3, "health/test_on_gpu.py"),
    Slice(
        name="exchange",
        asks="bus bandwidth between this machine's GPUs",
        minutes=2,
        program=("gpu_network.py",),
        result="gpu-network.json",
    ),
    _tests("tests", "all other tests of the mark gpu, a file at a time", 8, "--others"),
)


def named(each: Slice) -> frozenset[str]:
    """Of the file that it shares with others, the results that a slice names; none where it asks for all others."""
    return frozenset(word for word in each.program[1:] if not word.startswith("-"))


def others(each: Slice) -> frozenset[str]:
    """What all other slices with the same file name."""
    return frozenset[str]().union(*(named(one) for one in SLICES if one.result == each.result and one != each))

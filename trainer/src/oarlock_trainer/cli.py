"""The command `oarlock-trainer`. Each subcommand imports what it needs when it runs, so that none pays for another."""

from __future__ import annotations

import argparse
import os
import select
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from oarlock_api.contract.environment import AGENT_FILE, RUN_DIRECTORY, TERMINATION_LOG, Variable
from oarlock_api.contract.exit_codes import ExitCode
from oarlock_trainer.commands import checkpoints_arguments, job_arguments

if TYPE_CHECKING:
    from collections.abc import Sequence

IMPORT = "import-simpletuner"
"""A command of oarlock-import, which the extra `import` installs."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand and return its exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    parser, commands = _parser()
    if not given or given[0] not in commands.choices:  # else an agent would start 0.1 s later, for nothing
        _add_samples(commands)
        _add_installed(commands)
        if given and given[0] == IMPORT and IMPORT not in commands.choices:
            parser.error(
                f"{IMPORT} is not installed: pip install 'oarlock-trainer[import]' (in a checkout: make setup)"
            )
    options = parser.parse_args(given)
    try:
        code: int = options.run(options)
        sys.stdout.flush()
    except BrokenPipeError:
        if not _nobody_reads():
            raise
        # What is still to be written would raise again when Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 128 + signal.SIGPIPE
    return code


def _nobody_reads() -> bool:
    """Whether standard output is a pipe whose reader has seen enough, and not another pipe or connection is broken."""
    watch = select.poll()
    watch.register(sys.stdout.fileno(), 0)
    return any(event & select.POLLERR for _, event in watch.poll(0))


def _parser() -> tuple[argparse.ArgumentParser, argparse._SubParsersAction[argparse.ArgumentParser]]:
    parser = argparse.ArgumentParser(
        prog="oarlock-trainer",
        description="The program in Oarlock's training pods. In a pod it runs as `oarlock-trainer agent`; "
        "the other commands are for people and tests.",
    )
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _add_agent(commands)
    _add_train(commands)
    _add_preprocess(commands)
    _add_plan(commands)
    _add_profile(commands)
    _add_check_storage(commands)
    _add_check_gpus(commands)
    checkpoints_arguments.add(commands, run=_checkpoints)
    _add_import_single_file(commands)
    _add_export_agent(commands)
    return parser, commands


def _add_samples(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    from oarlock_trainer.commands import samples  # noqa: PLC0415 - knows each family, and brings pydantic

    samples.add(commands)


def _add_installed(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Commands of other distributions, such as oarlock-import's `import-simpletuner`."""
    from importlib.metadata import entry_points  # noqa: PLC0415

    for command in entry_points(group="oarlock_trainer.commands"):
        command.load()(commands)


def _add_agent(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "agent",
        help="be PID 1 of a training pod",
        description="Check the output, start this node's ranks, serve /status, /metrics and /healthz, and end with one "
        "exit code and one report for the whole pod. Takes its orders from the pod's environment and job.json.",
    )
    parser.add_argument("--program", help="MODULE:FUNCTION that each rank runs (default: the built-in trainer)")
    parser.add_argument("--warm", help="MODULE:FUNCTION that imports what the program needs, before the ranks start")
    parser.add_argument("--run-directory", type=Path, default=Path(RUN_DIRECTORY), help="where accelerate.yaml goes")
    parser.add_argument(
        "--termination-log", type=Path, default=Path(TERMINATION_LOG), help="where the report of a bad ending goes"
    )
    parser.add_argument(
        "--grace-seconds",
        type=float,
        help="time to save after SIGTERM (default: until the kubelet kills the pod)",
    )
    parser.set_defaults(run=_agent)


def _agent(options: argparse.Namespace) -> int:
    from oarlock_trainer.runtime import wakeup  # noqa: PLC0415

    # The rest of the agent takes a while to import, and a pod may be told to leave as soon as it starts.
    wakeup.hold(signal.SIGTERM)
    from oarlock_trainer.agent import parts, supervise  # noqa: PLC0415

    settings = {name: value for name, value in vars(options).items() if name != "run" and value is not None}
    return supervise.run(parts.Options(**settings), os.environ.copy())


def _add_train(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "train",
        help="run a job's ranks on this machine, without an agent",
        description="For debugging: run max(gpusPerNode, 1) ranks of a job of one node here, in the foreground. The "
        "exit code is the first rank's that is not 0. Ctrl-C or SIGTERM has them save and end; the same command goes on from "
        "there. Under `accelerate launch ... -m oarlock_trainer train`, on every "
        "machine of a job, it is one rank of them.",
    )
    job_arguments.add_job(parser)
    parser.add_argument("--program", help="MODULE:FUNCTION that each rank runs (default: the built-in trainer)")
    parser.set_defaults(run=_train)


def _train(options: argparse.Namespace) -> int:
    from oarlock_trainer.commands import foreground, launched  # noqa: PLC0415
    from oarlock_trainer.ranks import rank_host  # noqa: PLC0415

    program = options.program or rank_host.PROGRAM
    if not launched.is_launched(os.environ):
        return job_arguments.with_job(options, lambda job: foreground.run(job, program))
    code = job_arguments.with_job(options, lambda job: launched.run(job, program))
    sys.stdout.flush()
    sys.stderr.flush()
    # As every rank ends: threads of gloo and NCCL must neither change the code nor keep the process.
    os._exit(code)


def _add_preprocess(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "preprocess",
        help="encode a job's pictures and captions on this machine",
        description="Run max(gpusPerNode, 1) ranks of a job here, in the foreground, as with task: Preprocess: scan the "
        "data, encode what is not cached, and end. A run that was stopped goes on where it was.",
    )
    job_arguments.add_job(parser)
    parser.set_defaults(run=_preprocess)


def _preprocess(options: argparse.Namespace) -> int:
    from oarlock_trainer.commands import foreground  # noqa: PLC0415

    return job_arguments.with_job(options, foreground.preprocess)


def _add_plan(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "plan",
        help="tell what a job would do with its data and its GPUs, without GPUs",
        description="Read the metadata of a TrainingJob's data, sort the pictures into buckets for the job's number of "
        "ranks, and print the effective batch, the buckets, the steps and the bytes of the embeddings; then, as a model, "
        "the memory of a GPU, what is chosen to fit into it, and the time of a step. S3 is asked with this machine's own "
        f"credentials. Ends as the run would, with the exit code {ExitCode.DONE} where nothing stands against it, and a "
        f"line `note` for each thing that could not be looked at from here; {ExitCode.STORAGE} where a hub, a bucket or a "
        f"disk did not do its part, and the same command may succeed later; {ExitCode.CONFIGURATION} where a person must "
        "change the job, the data or the command.",
    )
    job_arguments.add_manifest(parser)
    parser.add_argument("--gpu", metavar="TYPE", help="type of the GPUs, such as H200 (assumed: H100)")
    parser.add_argument(
        "--fabric",
        metavar="NAME",
        help="network cards of a node and their speed, such as 8x400G or 1x100G, or NVLink (assumed: NVLink for one node, "
        "else 400G for each GPU)",
    )
    parser.set_defaults(run=_plan)


def _plan(options: argparse.Namespace) -> int:
    from oarlock_trainer.commands import plan  # noqa: PLC0415

    return plan.run(options)


def _add_profile(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "profile",
        help="join the traces of a job's ranks into one",
        description="Join the Chrome traces that spec.training.profile left in a job's output into one, on the clock of "
        "rank 0.",
    )
    parser.add_argument("output", type=Path, help="the job's output")
    parser.add_argument("--attempt", type=int, help="of which attempt (default: the newest that has traces)")
    parser.set_defaults(run=_run_profile)


def _run_profile(options: argparse.Namespace) -> int:
    from oarlock_trainer.commands import profile  # noqa: PLC0415

    return profile.run(options)


def _add_check_storage(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "check-storage",
        help="tell whether a directory can take a job's output",
        description="Make the directory, write, rename, read and delete a probe file below it, and compare the free "
        f"space. Exit code 0, or {ExitCode.STORAGE} with a sentence that says what stands in the way.",
    )
    parser.add_argument("directory", type=Path, metavar="DIR")
    parser.add_argument("--min-free", type=int, metavar="BYTES", help="room that must be free")
    parser.add_argument(
        "--model", type=Path, metavar="DIR", help="without --min-free: room for checkpoints of this model"
    )
    parser.add_argument(
        "--keep", type=int, default=5, metavar="N", help="so many checkpoints of it, and one (default: 5)"
    )
    parser.set_defaults(run=_check_storage)


def _check_storage(options: argparse.Namespace) -> int:
    from oarlock_trainer.preflight import storage  # noqa: PLC0415

    finding = storage.find(
        directory=str(options.directory.absolute()),
        node=os.environ.get(Variable.NODE, ""),
        min_free=options.min_free,
        model=str(options.model) if options.model else None,
        keep=options.keep,
    )
    _say(finding.detail)
    return finding.code


def _add_check_gpus(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "check-gpus",
        help="tell whether GPUs are there, healthy and idle",
        description="Ask NVML for the number of GPUs, for those that are lost or wait for a reset, and for memory in "
        f"use. Exit code 0, or {ExitCode.PREFLIGHT} with a sentence that says what is wrong with which GPU.",
    )
    parser.add_argument("expected", type=int, metavar="N", help="number of GPUs that must be there")
    parser.set_defaults(run=_check_gpus)


def _check_gpus(options: argparse.Namespace) -> int:
    from oarlock_trainer.preflight import driver, gpus  # noqa: PLC0415

    node = os.environ.get(Variable.NODE, "")
    finding = gpus.find(expected=options.expected, node=node, cuda=driver.torch_cuda())
    _say(finding.detail)
    return finding.code


def _checkpoints(options: argparse.Namespace) -> int:
    from oarlock_trainer.commands import checkpoints  # noqa: PLC0415

    return checkpoints.run(options)


def _add_import_single_file(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "import-single-file",
        help="make a model's folder of a transformer that lies in one file",
        description="Write a folder in diffusers' layout, for training.model.path: its transformer has the weights of FILE, "
        "which may have the names of its makers or of ComfyUI, and all else is of the model that FILE was made from, "
        "linked where that is possible. Weights keep their types; float8 becomes bfloat16. A whole checkpoint's "
        "transformer is taken. FILE must hold all weights of that model's transformer, and no others: adapters go on by "
        f"training.initFrom. Exit code {ExitCode.CONFIGURATION} where it does not fit, {ExitCode.STORAGE} where a disk did "
        "not do its part; nothing is written then.",
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="the .safetensors file")
    parser.add_argument(
        "--base",
        type=Path,
        required=True,
        metavar="DIR",
        help="the model that FILE was made from, in diffusers' layout; weights of its transformer are not needed",
    )
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="folder to make")
    parser.set_defaults(run=_import_single_file)


def _import_single_file(options: argparse.Namespace) -> int:
    from oarlock_trainer.commands import single_file  # noqa: PLC0415

    return single_file.run(options)


def _add_export_agent(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "export-agent",
        help="write the agent as one file, for images of other trainers",
        description=f"Write {AGENT_FILE}: the agent without a training program, pure Python, run by an image's own "
        f"python3 (3.10 or newer) as `python3 -I -S {AGENT_FILE}`. Pods of jobs with spec.custom have it brought so.",
    )
    parser.add_argument("directory", type=Path, metavar="DIR")
    parser.set_defaults(run=_export_agent)


def _export_agent(options: argparse.Namespace) -> int:
    from oarlock_trainer.commands import write_bundle  # noqa: PLC0415

    write_bundle.write(options.directory)
    return ExitCode.DONE


def _say(sentence: str) -> None:
    sys.stdout.write(sentence + "\n")

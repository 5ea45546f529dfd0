"""The rank host's parts: forking ranks, their codes, and what they may not inherit."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from oarlock_local import patience
from oarlock_trainer.ranks import rank_host
from oarlock_trainer.runtime import channel
from oarlock_trainer.runtime.channel import SAVE_SIGNAL
from oarlock_trainer.runtime.stop import StopRequest

if TYPE_CHECKING:
    from collections.abc import Callable


def next_ended(ranks: rank_host.ForkedRanks) -> list[tuple[int, int]]:
    """(rank, code) of those that end next."""
    while not (ended := ranks.reap()):
        time.sleep(0.002)
    return ended


def ends_with(program: Callable[[], int]) -> list[tuple[int, int]]:
    """(rank, code) of two ranks that run the program."""
    ranks = rank_host.ForkedRanks(program)
    ranks.start([{"RANK": "4"}, {"RANK": "5"}])
    ended: list[tuple[int, int]] = []
    while ranks:
        ended += next_ended(ranks)
    return sorted(ended)


def test_a_rank_has_none_of_the_hosts_variables_that_its_round_is_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OF_THE_GANG", "1")
    for without, code in (((), 1), (("OF_THE_GANG", "OF_NOBODY"), 0)):
        ranks = rank_host.ForkedRanks(lambda: int(os.environ.get("OF_THE_GANG", "0")))
        ranks.start([{"RANK": "4"}], without=without)
        assert next_ended(ranks) == [(4, code)]


def leaves(code: object) -> Callable[[], int]:
    def program() -> int:
        sys.exit(code)  # type: ignore[arg-type]

    return program


@pytest.mark.parametrize(
    ("program", "code"),
    [
        pytest.param(lambda: 0, 0, id="returns 0"),
        pytest.param(lambda: None, 0, id="returns nothing"),
        pytest.param(lambda: 86, 86, id="returns a code"),
        pytest.param(leaves(85), 85, id="exits with a code"),
        pytest.param(leaves(None), 0, id="exits without a code"),
        pytest.param(leaves("words"), 1, id="exits with words"),
        pytest.param(lambda: 1 // 0, 1, id="raises"),
        pytest.param(lambda: os.kill(os.getpid(), signal.SIGKILL), -signal.SIGKILL, id="is killed"),
    ],
)
def test_a_ranks_code_is_what_its_program_says(program: Callable[[], int], code: int) -> None:
    assert ends_with(program) == [(4, code), (5, code)]


def test_an_exception_is_told_to_the_agent_with_its_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    monkeypatch.setenv(channel.AGENT_FD, str(writing))
    ends_with(lambda: {}["missing"])
    os.close(writing)
    with os.fdopen(reading, "rb") as told:
        messages = [channel.decode(line) for line in told]
    assert sorted(message.rank for message in messages if message) == [4, 5]
    assert all(message and message.fields == {"code": 1, "summary": "KeyError: 'missing'"} for message in messages)


def test_each_rank_leads_a_session_of_its_own() -> None:
    assert ends_with(lambda: int(os.getsid(0) != os.getpid())) == [(4, 0), (5, 0)]


def test_a_ranks_process_is_named_after_it() -> None:
    assert ends_with(lambda: int(Path("/proc/self/comm").read_text().strip() != f"rank-{os.environ['RANK']}")) == [
        (4, 0),
        (5, 0),
    ]


def test_sigterm_before_the_program_can_take_it_means_left_on_request() -> None:
    ranks = rank_host.ForkedRanks(lambda: time.sleep(60) or 0)
    ranks.start([{"RANK": "0"}])
    ranks.signal(signal.SIGTERM)
    assert next_ended(ranks) == [(0, 86)]


def test_a_checkpoint_that_is_asked_for_right_after_the_fork_is_made_once_the_program_can() -> None:
    going_on, go_on = os.pipe()

    def program() -> int:
        os.read(going_on, 1)
        return 0 if StopRequest().take_saving() else 1

    ranks = rank_host.ForkedRanks(program)
    ranks.start([{"RANK": "0"}])
    ranks.signal(SAVE_SIGNAL)
    os.write(go_on, b"!")
    assert next_ended(ranks) == [(0, 0)]


def test_a_checkpoint_that_is_asked_for_disturbs_no_program_that_does_not_know_the_wish() -> None:
    going_on, go_on = os.pipe()
    ranks = rank_host.ForkedRanks(lambda: len(os.read(going_on, 1)) - 1)
    ranks.start([{"RANK": "0"}])
    ranks.signal(SAVE_SIGNAL)
    os.write(go_on, b"!")
    assert next_ended(ranks) == [(0, 0)]


def host_command(control: int, parent: int, *options: str) -> list[str]:
    module = "oarlock_trainer.ranks.rank_host"
    return [sys.executable, "-m", module, "--control", str(control), "--parent", str(parent), *options]


def test_a_host_that_is_asked_to_save_lives_on() -> None:
    control, orders = os.pipe()
    telling, told = os.pipe()
    host = subprocess.Popen(
        host_command(control, os.getpid(), "--program", "os:getpid", "--warm", "os:getpid"),
        pass_fds=(control, told),
        env={**os.environ, channel.AGENT_FD: str(told)},
    )
    os.close(control)
    assert b"host-ready" in os.read(telling, 4096)
    host.send_signal(SAVE_SIGNAL)
    os.close(orders)
    assert host.wait(timeout=patience.SECONDS) == 0


def test_lines_that_ranks_print_at_the_same_time_stay_whole(tmp_path: Path) -> None:
    (tmp_path / "talkers.py").write_text(
        "import sys\ndef talk():\n    for n in range(500):\n        print('said', n)\n"
        "        print('warned', n, file=sys.stderr)\n"
    )
    (control, orders), (telling, told) = os.pipe(), os.pipe()
    with (tmp_path / "printed").open("wb") as printed:
        host = subprocess.Popen(
            host_command(control, os.getpid(), "--program", "talkers:talk", "--warm", "os:getpid"),
            pass_fds=(control, told),
            env={
                **os.environ,
                channel.AGENT_FD: str(told),
                "PYTHONPATH": str(tmp_path),
                "PYTHONUNBUFFERED": "1",
            },
            stdout=printed,
            stderr=printed,
        )
    os.close(control)
    os.close(told)
    os.write(orders, json.dumps({"do": "start", "ranks": [{"RANK": str(rank)} for rank in range(4)]}).encode() + b"\n")
    heard = b""
    while heard.count(b"host-ended") < 4:
        told_now = os.read(telling, 4096)
        assert told_now, "the host has ended"
        heard += told_now
    os.close(orders)
    assert host.wait(timeout=patience.SECONDS) == 0
    lines = Counter((tmp_path / "printed").read_text().splitlines())
    assert lines == {f"{word} {n}": 4 for word in ("said", "warned") for n in range(500)}


def test_a_host_without_its_agent_leaves_at_once() -> None:
    command = host_command(0, 1, "--program", "os:x")
    ended = subprocess.run(command, check=False, capture_output=True, env={**os.environ, channel.AGENT_FD: "2"})
    assert ended.returncode == 137


def test_a_warm_up_that_is_not_there_is_no_error_but_one_that_lacks_a_part_is(tmp_path: Path) -> None:
    (tmp_path / "lacking_warm_up.py").write_text("import a_part_that_is_missing\n")
    rank_host._warm("no_such_warm_up:anything")
    sys.path.insert(0, str(tmp_path))
    try:
        with pytest.raises(ModuleNotFoundError, match="a_part_that_is_missing"):
            rank_host._warm("lacking_warm_up:anything")
    finally:
        sys.path.remove(str(tmp_path))


def test_train_ends_all_ranks_with_the_code_of_the_first_that_fails(tmp_path: Path) -> None:
    (tmp_path / "programs.py").write_text(
        "import os, time\ndef main():\n    if os.environ['RANK'] == '0':\n        return 85\n    time.sleep(600)\n"
    )
    (tmp_path / "job.json").write_text(
        '{"version": 2, "job": "flux", "namespace": "n", "job_uid": "u", "attempt": 1, "nodes": 1, "gpus_per_node": 2,'
        '"output_directory": "/output/flux", "training": {}}'
    )
    command = [sys.executable, "-m", "oarlock_trainer", "train", "--program", "programs:main", "job.json"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    ended = subprocess.run(command, cwd=tmp_path, env=environment, check=False, timeout=patience.SECONDS)
    assert ended.returncode == 85

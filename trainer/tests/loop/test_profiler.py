"""Recorded steps leave a trace of every rank, and the command puts them onto one clock."""

from __future__ import annotations

import gzip
import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch

from oarlock_api.profiling import Profile
from oarlock_trainer import cli
from oarlock_trainer.commands.profile import join
from oarlock_trainer.loop.profiler import Profiler, folder, offset
from oarlock_trainer.runtime import channel
from oarlock_trainer.runtime.errors import ConfigurationError
from oarlock_trainer.runtime.job import RankInfo

if TYPE_CHECKING:
    from pathlib import Path

    from gang import Gang


def read(path: Path) -> dict[str, Any]:
    with gzip.open(path, "rt") as file:
        found: dict[str, Any] = json.load(file)
    return found


def write(output: Path, rank: int, *, base: int, ahead: int, starts: list[float], attempt: int = 1) -> None:
    """A trace of one rank; `starts` in microseconds since `base`, which is in nanoseconds."""
    place = folder(output, attempt)
    place.mkdir(parents=True, exist_ok=True)
    events = [{"ph": "X", "name": f"work {rank}", "pid": 7, "tid": 7, "ts": start, "dur": 1.0} for start in starts]
    events += [{"ph": "s", "id": 3, "pid": 7, "tid": 7, "ts": starts[0]}, {"ph": "M", "name": "process_name", "pid": 7}]
    with gzip.open(place / f"rank-{rank}.trace.json.gz", "wt") as file:
        json.dump({"baseTimeNanoseconds": base, "traceEvents": events}, file)
    (place / f"rank-{rank}.clock.json").write_text(json.dumps({"rank": rank, "aheadNanoseconds": ahead}))


def test_traces_of_ranks_with_other_clocks_are_on_that_of_rank_0(tmp_path: Path) -> None:
    write(tmp_path, 0, base=1_000_000, ahead=0, starts=[5.0, 9.0])
    write(tmp_path, 1, base=4_000_000, ahead=3_000_000, starts=[6.0])  # 3 ms ahead
    write(tmp_path, 10, base=1_002_000, ahead=0, starts=[5.0])
    events = read(join(tmp_path))["traceEvents"]
    found = [(one["name"], one["ts"]) for one in events if one["ph"] == "X"]
    assert found == [("work 0", 0.0), ("work 0", 4.0), ("work 1", 1.0), ("work 10", 2.0)]
    assert {one["pid"] for one in events} == {"rank 0: 7", "rank 1: 7", "rank 10: 7"}
    assert [one["id"] for one in events if one["ph"] == "s"] == ["0.3", "1.3", "10.3"]


def test_the_newest_attempt_that_has_traces_is_taken_or_the_one_that_is_named(tmp_path: Path) -> None:
    for attempt in (2, 10):
        write(tmp_path, 0, base=0, ahead=0, starts=[1.0], attempt=attempt)
    folder(tmp_path, 11).mkdir()
    assert join(tmp_path).parent.name == "attempt-10"
    assert join(tmp_path, 2).parent.name == "attempt-2"


def test_an_output_without_traces_is_refused_with_what_makes_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ConfigurationError, match=r"no traces of attempt 3: set spec.training.profile"):
        join(tmp_path, 3)
    assert cli.main(["profile", str(tmp_path)]) != 0
    assert "set spec.training.profile" in capsys.readouterr().err


class Ranks:
    """Two of them, as rank 1 sees them. `recorded`: whether rank 0 has a trace; None: as this one."""

    device = torch.device("cpu")
    rank_info = RankInfo(rank=1, world_size=2, local_rank=1, local_world_size=2)

    def __init__(self, *, recorded: bool | None = None) -> None:
        self.recorded = recorded
        self.told: list[str] = []

    def barrier(self) -> None:
        self.told.append("barrier")

    def gather(self, value: Any) -> list[Any]:
        differs = self.recorded is not None and isinstance(value, bool)
        return [self.recorded if differs else value, value]


def profiler_of(output: Path, ranks: Ranks) -> Profiler:
    """Of ranks that have done three steps, and record the next."""
    job = SimpleNamespace(output=output, file=SimpleNamespace(attempt=1))
    session: Any = SimpleNamespace(first=3, job=job, ranks=ranks)
    return Profiler(Profile(after=0, steps=1), session)


@pytest.mark.parametrize(("of_rank_0", "again"), [(True, False), (False, True)])
def test_a_later_round_of_an_attempt_records_only_what_an_earlier_one_did_not_on_all_ranks(
    tmp_path: Path, *, of_rank_0: bool, again: bool
) -> None:
    write(tmp_path, 1, base=0, ahead=0, starts=[1.0])
    path = folder(tmp_path, 1) / "rank-1.trace.json.gz"
    before = path.read_bytes()
    profiler = profiler_of(tmp_path, Ranks(recorded=of_rank_0))
    profiler.begin(3)
    profiler.end(4, last=False)
    assert (path.read_bytes() != before) is again
    assert not list(path.parent.glob(".*")), "a trace that was written"


def test_a_trace_that_takes_minutes_to_write_is_waited_for_by_all_and_no_hang(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranks = Ranks()
    told, profiler = ranks.told, profiler_of(tmp_path, ranks)
    profiler.begin(3)
    monkeypatch.setattr(channel, "send", lambda event, **_fields: told.append(event))
    del told[:]
    profiler.end(4, last=False)
    assert told == ["waiting", "barrier", "working"]
    assert read(folder(tmp_path, 1) / "rank-1.trace.json.gz")["traceEvents"]


def test_one_late_exchange_moves_no_clock() -> None:
    assert offset([1_000, 2_000, 9_900], [500, 1_510, 2_000]) == 500


@pytest.mark.deep
@pytest.mark.parametrize("after", [2, 3])
def test_a_job_records_the_steps_that_it_was_asked_for_on_every_rank_and_trains_as_without(
    gang: Gang, tmp_path: Path, after: int
) -> None:
    fields: dict[str, Any] = {"steps": 4, "checkpoint": {}}
    plain = gang.run(tmp_path / "plain", gang.training(**fields))
    profile = {"steps": 2, "after": after}  # of the second case the run has one step alone
    run = gang.run(tmp_path / "recorded", gang.training(**fields, profile=profile))
    assert run.codes == {0: 0, 1: 0}, gang.log()
    assert run.losses == plain.losses
    place = folder(tmp_path / "recorded", 1)
    updates = {0: 0, 1: 0}
    for rank in updates:
        events = read(place / f"rank-{rank}.trace.json.gz")["traceEvents"]
        updates[rank] = sum(str(one.get("name", "")).startswith("Optimizer.step") for one in events)
    assert updates == {0: 4 - after, 1: 4 - after}
    assert not list(folder(tmp_path / "plain", 1).glob("*"))
    assert cli.main(["profile", str(tmp_path / "recorded")]) == 0
    joined = read(place / "all.trace.json.gz")["traceEvents"]
    assert {str(one["pid"]).partition(":")[0] for one in joined if "pid" in one} == {"rank 0", "rank 1"}

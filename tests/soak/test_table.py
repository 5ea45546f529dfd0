"""The table of a soak."""

from __future__ import annotations

from tests.soak.table import Cost, percentile_90, reasons, table, without_effect


def test_faults_stand_by_kind_and_rung_and_those_that_met_others_together() -> None:
    costs = [
        Cost(kind="rank-killed", rung="new ranks", alone=True, down=down, start=down - 0.5) for down in (1.0, 2.0, 9.0)
    ]
    costs.append(Cost(kind="api-paused", rung="nothing", alone=True, down=0.5))
    costs += [Cost(kind=kind, rung="an attempt", alone=False, down=4.0, start=3.0) for kind in ("cut", "eviction")]
    rows = table(costs).splitlines()[2:]
    assert rows == [
        "| api-paused | nothing | 1 | 0.5 | 0.5 | 0.5 | - | - |",
        "| rank-killed | new ranks | 3 | 2.0 | 9.0 | 9.0 | 1.5 | 0.5 |",
        "| several at once | an attempt | 2 | 4.0 | 4.0 | 4.0 | 3.0 | 1.0 |",
    ]


def test_why_faults_cost_an_attempt_is_counted_by_kind_whatever_the_pods_are_called() -> None:
    whys = ("soak-1-2-0 did not stand by", "soak-2-1-1-i3 did not stand by", "")
    costs = [Cost(kind="cut", rung="an attempt", alone=True, down=4.0, start=3.0, why=why) for why in whys]
    costs.append(Cost(kind="rank-killed", rung="new ranks", alone=True, down=1.0, start=0.5))
    assert reasons(costs).splitlines()[2:] == ["| cut | - | 1 |", "| cut | POD did not stand by | 2 |"]


def test_the_90th_percentile_is_by_the_nearest_rank() -> None:
    assert percentile_90([float(number) for number in range(1, 11)]) == 9.0
    assert percentile_90([3.0]) == 3.0


def test_a_fault_that_is_to_start_ranks_anew_and_never_does_is_found() -> None:
    def costs(kind: str, *rungs: str, alone: bool = True) -> list[Cost]:
        return [Cost(kind=kind, rung=rung, alone=alone, down=1.0) for rung in rungs]

    done = [
        *costs("xid-94", "nothing", "nothing", "nothing"),
        *costs("xid-79", "nothing", "nothing", "a new pod"),
        *costs("cut", "nothing", "nothing"),
        *costs("cut", "nothing", alone=False),
        *costs("api-paused", "nothing", "nothing", "nothing"),
    ]
    assert without_effect(done, {"xid-94", "xid-79", "cut"}) == ["xid-94"]

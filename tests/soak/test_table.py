"""The table of a soak."""

from __future__ import annotations

from tests.soak.table import Cost, percentile_90, reasons, table


def test_faults_stand_by_kind_and_rung_and_those_that_met_others_together() -> None:
    costs = [
        Cost(kind="rank-killed", rung="a round", alone=True, down=down, start=down - 0.5) for down in (1.0, 2.0, 9.0)
    ]
    costs.append(Cost(kind="api-paused", rung="nothing", alone=True, down=0.5))
    costs += [Cost(kind=kind, rung="an attempt", alone=False, down=4.0, start=3.0) for kind in ("cut", "eviction")]
    rows = table(costs).splitlines()[2:]
    assert rows == [
        "| api-paused | nothing | 1 | 0.5 | 0.5 | 0.5 | - | - |",
        "| rank-killed | a round | 3 | 2.0 | 9.0 | 9.0 | 1.5 | 0.5 |",
        "| several at once | an attempt | 2 | 4.0 | 4.0 | 4.0 | 3.0 | 1.0 |",
    ]


def test_why_faults_cost_an_attempt_is_counted_by_kind_whatever_the_pods_are_called() -> None:
    whys = ("soak-1-2-0 did not stand by", "soak-2-1-1-i3 did not stand by", "")
    costs = [Cost(kind="cut", rung="an attempt", alone=True, down=4.0, start=3.0, why=why) for why in whys]
    costs.append(Cost(kind="rank-killed", rung="a round", alone=True, down=1.0, start=0.5))
    assert reasons(costs).splitlines()[2:] == ["| cut | - | 1 |", "| cut | POD did not stand by | 2 |"]


def test_the_90th_percentile_is_by_the_nearest_rank() -> None:
    assert percentile_90([float(number) for number in range(1, 11)]) == 9.0
    assert percentile_90([3.0]) == 3.0

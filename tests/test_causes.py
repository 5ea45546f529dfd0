"""Whatever the operator or an agent can say has a row in the one table of causes."""

from __future__ import annotations

from oarlock.explain.causes import OF_CLASS, OF_CODE, Cause, named
from oarlock_api.contract.exit_codes import ExitCode, FailureClass
from oarlock_api.contract.status import Degradation
from oarlock_operator.model.reasons import Reason


def test_every_reason_of_the_operator_is_a_cause() -> None:
    assert [reason.value for reason in Reason if named(reason.value) is None] == []


def test_every_exit_code_and_class_and_degradation_has_a_cause() -> None:
    assert set(OF_CODE) == set(ExitCode)
    assert set(OF_CLASS) == set(FailureClass)
    assert [kind.value for kind in Degradation if named(kind.value) is None] == []


def test_every_cause_says_what_it_means_and_what_to_do() -> None:
    assert [cause.value for cause in Cause if not cause.meaning or not cause.next.endswith((".", ")"))] == []

"""What the API server's no means: for ever, until somebody has mended something, or for a moment."""

from __future__ import annotations

import pytest

from oarlock_operator.kube.api_error import ApiError

VOLCANO = 'admission webhook "validatepod.volcano.sh" denied the request: as the podgroup phase is Pending'
POLICY = "pods \"flux-1-0\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no such label"
WEBHOOK = 'Internal error occurred: failed calling webhook "mpod.kb.io": no endpoints available'


@pytest.mark.parametrize(
    ("status", "message", "final", "lasting"),
    [
        (422, 'Pod "flux-1-0" is invalid: spec.volumes[5].name: Duplicate value: "tmp"', True, True),
        (400, "strict decoding error: unknown field spec.networkTopology", True, True),
        (400, VOLCANO, False, True),
        (422, POLICY, False, True),
        (403, "exceeded quota: gpus", False, True),
        (404, "the server could not find the requested resource", False, True),
        (500, WEBHOOK, False, True),
        (500, "etcdserver: leader changed", False, False),
        (429, "try again later", False, False),
        (0, "no answer", False, False),
    ],
)
def test_only_what_breaks_the_apis_own_rules_ends_a_job_and_what_lasts_is_told(
    status: int,
    message: str,
    final: bool,  # noqa: FBT001
    lasting: bool,  # noqa: FBT001
) -> None:
    error = ApiError(status, "", message)
    assert (error.final, error.lasting) == (final, lasting)

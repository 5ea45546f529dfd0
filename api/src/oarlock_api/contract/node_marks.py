"""What Oarlock writes of cordons: annotations of nodes, how a person gives one back, and ConfigMaps beside the operator."""

from __future__ import annotations

CORDONED = "oarlock.dev/cordoned"
"""Annotation of a node that Oarlock cordoned: who, why, when, on what evidence."""
ENDED = "oarlock.dev/last-cordon"
"""The same of a node that a person has uncordoned since."""
GIVEN_BACK = "oarlock.dev/given-back"
"""Annotation that a person may write: since when the node is mended, for jobs that avoid it though nobody cordoned it."""
LEDGER = "oarlock-cordons"
"""ConfigMap in which each cordon is entered: under `cordons` a JSON array of node, job, time, done and uid, under `limits` as
JSON what the brakes allowed when it was written last."""
BREAKER = "oarlock-cordon-breaker"
"""ConfigMap that stops all cordoning while it is there; its `reason` says why."""
ONLY_A_CLAIM = "its report is only a claim"
"""In status.avoidedNodes[].notCordoned: any program may have said that the GPU is broken."""

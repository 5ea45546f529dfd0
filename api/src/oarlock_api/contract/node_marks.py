"""Annotations of nodes: what Oarlock writes on a node that it cordons, and how a person gives one back."""

from __future__ import annotations

CORDONED = "oarlock.dev/cordoned"
"""Annotation of a node that Oarlock cordoned: who, why, when, on what evidence."""
ENDED = "oarlock.dev/last-cordon"
"""The same of a node that a person has uncordoned since."""
GIVEN_BACK = "oarlock.dev/given-back"
"""Annotation that a person may write: since when the node is mended, for jobs that avoid it though nobody cordoned it."""

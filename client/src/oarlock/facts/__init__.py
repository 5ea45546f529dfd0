"""Facts about one job: from a cluster (`oarlock.facts.cluster`) or from its output's folder (`oarlock.facts.folder`)."""

from oarlock.facts.model import Facts, Missing, Output

__all__ = ["Facts", "Missing", "Output"]

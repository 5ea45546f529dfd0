"""report(facts) -> one HTML file that tells a job: how it stands, its curve, its attempts, its pictures, its faults.

It asks for nothing from elsewhere, and opens by file://. Its style and its one small script are let in by their hashes, so
that nothing that a job said could run, were it ever not escaped. Pure but for the pictures, which `pictures` reads; it
imports neither kubernetes nor a terminal: the trainer writes reports too.
"""

from oarlock.report.page import report
from oarlock.report.pictures import Gallery, find_gallery

__all__ = ["Gallery", "find_gallery", "report"]

"""Records of all families' pipelines, by the name of a test's parameter: a new family adds its own here."""

from __future__ import annotations

import flux2_pipeline
import flux_pipeline
import qwenimage_pipeline
import sd3_pipeline
import wan_pipeline
import zimage_pipeline

RECORDS = {
    "flux": flux_pipeline.RECORD,
    "flux2": flux2_pipeline.KLEIN,
    "flux2-dev": flux2_pipeline.DEV,
    "z-image": zimage_pipeline.RECORD,
    "sd3": sd3_pipeline.RECORD,
    "qwen_image": qwenimage_pipeline.RECORD,
    "wan": wan_pipeline.RECORD,
}

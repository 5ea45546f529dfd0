"""webhooks.json as spec.webhooks. An address may hold a token, so it goes into a Secret like the token itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oarlock_import.draft import Draft
from oarlock_import.options import Options
from oarlock_import.rows import table
from oarlock_import.tables.dataset import WEBHOOK

if TYPE_CHECKING:
    from oarlock_import.report import Report

_ROWS = table(*WEBHOOK)
_LOUD = ("Error", "Critical")
"""Levels that do not hear of a GPU that only warns."""
STRICT = {
    "name": "gpu-circuit-breaker",
    "when": {"verdict": "Hold", "probes": ["thermalMargin", "thermalSlowdown", "powerBrake"]},
    "action": "AvoidNode",
}
"""What SimpleTuner's circuit breaker opens for, and a job only saves at: heat and power."""


def read(given: Any, *, job: str, source: str, report: Report) -> list[dict[str, Any]]:
    """The webhooks of one object or a list of them; what is none is refused."""
    entries = given if isinstance(given, list) else [given]
    found = []
    for number, entry in enumerate(entries, start=1):
        if isinstance(entry, dict):
            options = Options(f"{source}[{number}]", entry, rows=_ROWS, report=report)
            found.append(_webhook(options, f"webhook-{number}", f"{job}-webhooks"))
        else:
            report.refused(source, f"entry {number}", "is no object")
    return found


def _webhook(options: Options, name: str, secret: str) -> dict[str, Any]:
    draft = Draft()
    draft.put("name", name)
    if "webhook_type" in options:
        options.carry(draft, "webhook_type")
    else:
        options.refused("webhook_type", "is missing: write raw or discord")
    addresses = [key for key in ("callback_url", "webhook_url") if key in options]
    if len(addresses) != 1:
        options.refused("callback_url", "write one address: callback_url or webhook_url")
    keys = {"url": addresses[0]} if addresses else {}
    if "auth_token" in options:
        keys["auth"] = "auth_token"
    for what, key in keys.items():
        draft.put(f"{what}SecretRef", {"name": secret, "key": f"{name}-{what}"})
        options.mapped(key, words=f"by the Secret {secret}, key {name}-{what}, not written down")
    options.settle(draft)
    return draft.spec


def rules(webhooks: list[dict[str, Any]], *, source: str, report: Report) -> list[dict[str, Any]]:
    """spec.recovery.rules for those who hear of faults alone: what SimpleTuner takes for one is one then, and is heard."""
    loud = [webhook["name"] for webhook in webhooks if webhook.get("minLevel") in _LOUD]
    if not loud:
        return []
    words = (
        f"log_level of {', '.join(loud)} hears of faults alone, and heat and power are warnings here -> recovery.rules: "
        f"{STRICT['name']} ({STRICT['action']}; write Fail where the job is to end instead)"
    )
    report.mapped(source, "log_level", words=words)
    return [STRICT]


def task(webhooks: list[dict[str, Any]]) -> str:
    """The command that makes the Secret, without its values."""
    refs = [ref for webhook in webhooks for ref in (webhook.get("urlSecretRef"), webhook.get("authSecretRef")) if ref]
    literals = " ".join(f"--from-literal={ref['key']}=..." for ref in refs)
    return f"kubectl create secret generic {refs[0]['name']} {literals}" if refs else ""

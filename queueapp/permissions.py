"""The permissions of ours, by what they allow. Pure; the one place that spells them.

Rows of them are made by `models.operations`. Who asks is judged by the skins: the admin, REST, the page of metrics.
"""

from __future__ import annotations

VIEW_OPERATIONS = "view_operations"
VIEW_PAYLOAD = "view_payload"
VIEW_ALL_TENANTS = "view_all_tenants"
OPERATE_POOL = "operate_pool"
OPERATE_JOB = "operate_job"
DISCARD_JOB = "discard_job"


def full(name: str) -> str:
    """As Django asks for it. Those of a package that builds on the queue come spelt in full."""
    return name if "." in name else f"queueapp.{name}"

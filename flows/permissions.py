"""The permissions of flows, by what they allow. Pure; the one place that spells them.

Rows of them are made by `models.Run` and `models.FlowVersion`. Contents take the queue's own right to see contents.
"""

from __future__ import annotations

VIEW_RUN = "view_run"
VIEW_VERSION = "view_flowversion"
CANCEL_RUN = "cancel_run"
RESUME_RUN = "resume_run"
RETRY_STEP = "retry_step"
SEND_EVENT = "send_event"


def full(name: str) -> str:
    """As Django asks for it."""
    return f"ductor_flows.{name}"

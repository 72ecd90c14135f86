"""The admin of flows: runs, each with its graph and its steps, what people may do to them, and stored definitions.

Everything is read from the database; the store is asked for nothing, so that the pages stand while it is away.
"""

from __future__ import annotations

from flows.admin.runs import RunAdmin
from flows.admin.versions import FlowVersionAdmin

__all__ = ["FlowVersionAdmin", "RunAdmin"]

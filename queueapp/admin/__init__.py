"""The admin: pools, tenants, limits and schedules as rows; what runs, waits and died straight from the store.

Rows are edited without the store; pages about what is in it say within a second or two when it does not answer. Only
the deletion and the renaming of a pool need it.
"""

from __future__ import annotations

from queueapp.admin.deadletters import DeadLettersAdmin
from queueapp.admin.inspections import DeadLetterInspectionAdmin
from queueapp.admin.jobs import JobsAdmin
from queueapp.admin.keylimits import KeyLimitAdmin
from queueapp.admin.limits import TenantLimitsAdmin, TenantLimitsInline
from queueapp.admin.operations import OperationsAdmin
from queueapp.admin.outbox import OutboxEntryAdmin
from queueapp.admin.pools import PoolAdmin
from queueapp.admin.schedules import ScheduleAdmin
from queueapp.admin.tenants import TenantAdmin

__all__ = [
    "DeadLetterInspectionAdmin",
    "DeadLettersAdmin",
    "JobsAdmin",
    "KeyLimitAdmin",
    "OperationsAdmin",
    "OutboxEntryAdmin",
    "PoolAdmin",
    "ScheduleAdmin",
    "TenantAdmin",
    "TenantLimitsAdmin",
    "TenantLimitsInline",
]

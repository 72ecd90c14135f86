"""The forms of names that stand in keys, ids and settings. Pure; the one place that spells them.

`|` is in none of them: it joins tenant and lane in keys, so that no two pairs can be taken for one another.
"""

from __future__ import annotations

import re

NAMESPACE_FORM = re.compile(r"[a-z0-9_-]{1,32}")
POOL_FORM = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
TENANT_FORM = re.compile(r"[A-Za-z0-9.:@-][A-Za-z0-9._:@-]{0,63}")
"""A tenant's id as hosts may give it; those beginning with `_` are ours."""
TASK_FORM = re.compile(r"[^\x00-\x1f]{1,512}")
"""A task's dotted name, as loosely as it can be read."""
LANE_FORM = re.compile(r"[A-Za-z0-9._:@-]{1,64}")
SYSTEM_TENANT = "_ductor"
"""Whose the jobs are that a package on top of the queue has for itself (`queueapp.producer.handover`): wake-ups."""
SYSTEM_WEIGHT = 10.0
"""Its weight, whatever that of others is by default: what it waits for, others wait for (lua/include/slots.lua)."""

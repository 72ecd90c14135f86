"""The REST API: start jobs, look at them and act on them; look at pools, tenants and schedules, and operate them.

Include `queueapp.api.urls` under any prefix; needs djangorestframework.

Who may see what is the host's decision: `DUCTOR["API_TENANTS"]` names a callable that says for which tenants a request
may speak, and without it the API is closed. `ALL` is what it returns for somebody who may speak for every tenant.
"""

from __future__ import annotations

from queueapp.api.grants import ALL

__all__ = ["ALL"]

"""What pushes back when somebody asks too often: a rate for each tenant and user, where the host sets one.

The host names rates under `DEFAULT_THROTTLE_RATES` of its REST_FRAMEWORK setting; a scope without one is not limited.
`ductor-enqueue` counts jobs, so that a bulk request costs as many as it has; `ductor-read` and `ductor-act` count
requests. The counts stand in the host's default cache: with a cache of each process, so is the rate.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rest_framework.request import Request
from rest_framework.settings import api_settings
from rest_framework.throttling import SimpleRateThrottle

from queueapp.api.grants import ALL, signed_in

if TYPE_CHECKING:
    from queueapp.api.view import DuctorView

ENQUEUE, READ, ACT = "ductor-enqueue", "ductor-read", "ductor-act"


class TenantRate(SimpleRateThrottle):
    """The rate of one scope for whoever asks. Nobody's rate is touched by another tenant or another user."""

    num_requests: int | None
    duration: int | None

    def __init__(self, scope: str) -> None:
        self.scope = scope
        super().__init__()

    def get_rate(self) -> str | None:
        # Read at each request: DRF's own would raise for a scope that the host leaves out.
        rates: Mapping[str, Any] = api_settings.DEFAULT_THROTTLE_RATES or {}
        rate: str | None = rates.get(str(self.scope))
        return rate

    def get_cache_key(self, request: Request, view: Any) -> str:
        granted: DuctorView = view
        if user := signed_in(request):
            who = f"user {user.pk}"
        elif granted.tenants is not ALL and granted.tenants:
            # The tenant itself has asked: counted by address as well, it would multiply its rate by its machines.
            who = ""
        else:
            who = f"at {self.get_ident(request)}"
        tenants = "*" if granted.tenants is ALL else "\n".join(sorted(granted.tenants))
        # Tenants and addresses come from outside: as a digest they have a length and an alphabet that any cache takes.
        ident = hashlib.blake2b(f"{who}\0{tenants}".encode(), digest_size=16).hexdigest()
        return self.cache_format % {"scope": self.scope, "ident": ident}

    def charge(self, more: int) -> None:
        """Counts `more` beyond the request itself; what goes beyond the rate delays later requests."""
        if self.rate is not None and more > 0:
            self.history[:0] = [self.now] * more
            self.cache.set(self.key, self.history, self.duration)

    def wait(self) -> float | None:
        """Seconds until the next request is let in."""
        duration = float(self.duration or 0)
        if not self.num_requests:
            return duration
        oldest: float = self.history[self.num_requests - 1]
        return max(1.0, math.ceil(oldest + duration - self.now))

"""Who runs: the slots in use of each tenant and lane of a tree."""

from __future__ import annotations


class Slots:
    """A slot is a job that runs; the job tells whose it is, so that giving it back twice is a no-op."""

    __slots__ = ("_scopes", "_used")

    def __init__(self) -> None:
        self._scopes: dict[str, tuple[str, str]] = {}
        self._used: dict[tuple[str, str], int] = {}

    def __len__(self) -> int:
        return len(self._scopes)

    def used(self, tenant: str, lane: str = "") -> int:
        return self._used.get((tenant, lane), 0)

    def take(self, job_id: str, tenant: str, lane: str) -> None:
        self._scopes[job_id] = (tenant, lane)
        self._count(tenant, lane, 1)

    def give_back(self, job_id: str) -> tuple[str, str] | None:
        """Tenant and lane of the job, None when it holds no slot."""
        scope = self._scopes.pop(job_id, None)
        if scope is not None:
            self._count(*scope, -1)
        return scope

    def _count(self, tenant: str, lane: str, change: int) -> None:
        used = self._used
        for scope in ((tenant, ""), (tenant, lane)):
            left = used.get(scope, 0) + change
            if left:
                used[scope] = left
            else:
                used.pop(scope, None)

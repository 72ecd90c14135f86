"""Clearance: of which tenants and lanes a worker knows that nothing configured holds their jobs back.

It is good for one version of a pool's configuration, which every answer of `cycle` tells; another one makes all of it
unknown. What somebody asks about and is not known is looked up by the I/O thread before its next call. `holds` is asked
from any thread, everything else is the I/O thread's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

Scope = tuple[str, str]
"""Tenant and lane."""
MOST = 10_000
"""So many are remembered."""
AT_ONCE = 100
"""So many are looked up in one call."""


class Clearance:
    """That of one pool."""

    def __init__(self) -> None:
        self._version: int | None = None
        self._known: dict[Scope, bool] = {}
        """Replaced, never emptied: other threads read it."""
        self._wanted: deque[Scope] = deque(maxlen=MOST)

    @property
    def wanted(self) -> bool:
        """Whether there is something to look up."""
        return bool(self._wanted)

    def holds(self, tenant: str, lane: str) -> bool | None:
        """Whether jobs of this lane may begin as far as the configuration goes; None: not known, it is looked up."""
        known = self._known.get((tenant, lane))
        if known is None:
            self._wanted.append((tenant, lane))
        return known

    def told(self, version: int) -> None:
        """The configuration in force has this version."""
        if version != self._version:
            self._version, self._known = version, {}

    def look_up(self, unlimited: Callable[[Sequence[Scope]], tuple[int, list[bool]]]) -> None:
        """Asks the store about what is wanted, a share at a time; what it cannot ask is forgotten."""
        scopes = list(dict.fromkeys(self._wanted.popleft() for _ in range(min(AT_ONCE, len(self._wanted)))))
        version, free = unlimited(scopes)
        self.told(version)
        if len(self._known) > MOST:
            self._known = {}
        self._known.update(zip(scopes, free, strict=True))

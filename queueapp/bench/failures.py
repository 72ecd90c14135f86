"""What goes wrong in a run by plan: bodies fail, workers are lost. Pure, the same under every policy."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Literal

Fate = Literal["completed", "failed", "lost"]
"""How one run of a job ends. `lost`: it ran, and its worker was gone before it could say so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failures:
    """How often runs go wrong, and what follows. Shares of all runs, from 0 to 1."""

    failing: float = 0.0
    lost: float = 0.0
    attempts: int = 3
    """Runs that a job has at most; then it is dead."""
    backoff_ms: int = 1_000
    """After a failed run, until the next may begin."""
    lease_ms: int = 2_000
    """After the beginning of a run that is lost, until it is noticed; never before the run's own end."""

    def __bool__(self) -> bool:
        return self.failing > 0 or self.lost > 0

    def fate(self, seed: int, number: int, attempt: int) -> Fate:
        """How run `attempt` (from 1) of job `number` ends: by a hash, so that no policy's order changes it."""
        told = hashlib.sha256(f"{seed}/{number}/{attempt}".encode()).digest()
        drawn = int.from_bytes(told[:6], "big") / 2**48
        if drawn < self.failing:
            return "failed"
        return "lost" if drawn < self.failing + self.lost else "completed"

"""The policies by the name that `Pool.policy` holds."""

from __future__ import annotations

from queueapp.policies.fifo import Fifo
from queueapp.policies.protocol import Policy
from queueapp.policies.tiered import Tiered

POLICIES: dict[str, type[Policy]] = {"fifo": Fifo, "tiered": Tiered}
"""Name → class of every policy that a pool can have."""

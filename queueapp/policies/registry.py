"""The policies by the name that `Pool.policy` holds."""

from __future__ import annotations

from queueapp.policies.fifo import Fifo
from queueapp.policies.protocol import Policy
from queueapp.policies.tiered import Tiered

DEFAULT = "tiered"

POLICIES: dict[str, type[Policy]] = {"fifo": Fifo, "tiered": Tiered}
"""Name → class of every policy that a pool can have."""

PLANNED: tuple[str, ...] = ("priority", "edf", "wfq", "aging", "ring", "drr", "lottery")
"""Names that are kept for policies to come."""


class UnknownPolicy(LookupError):
    """No policy of this name exists."""


class PolicyNotYet(UnknownPolicy):
    """A policy of this name is planned but not there yet."""


def find(name: str) -> Policy:
    """The policy called `name`; UnknownPolicy (or PolicyNotYet) says which names can be chosen."""
    cls = POLICIES.get(name)
    if cls is not None:
        return cls()
    choices = ", ".join(sorted(POLICIES))
    if name in PLANNED:
        raise PolicyNotYet(f"policy {name!r} is planned but not there yet; choose one of: {choices}")
    raise UnknownPolicy(f"policy {name!r} is unknown; choose one of: {choices}")

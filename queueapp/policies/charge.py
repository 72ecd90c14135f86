"""What a lease was charged: what the tree hands out with a job, and takes back to correct it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, kw_only=True)
class Charge:
    """What the pick of one job was charged, with the weights it was charged at: all that a settlement needs.

    Nobody changes one. It is not frozen because that takes three times as long to make, and each pick makes one.
    """

    id: str
    tenant: str
    lane: str
    rank: float
    """Where the job stood in its lane: a return unrun puts it there again."""
    charged: float
    tenant_weight: float
    lane_weight: float
    fallback: float
    """Where the tenant stood right after the charge."""
    estimated: bool
    for_minimum: bool = False
    """Its tenant was below its guaranteed minimum: the root was not charged, and is not settled."""

    def corrected(self, charged: float) -> Charge:
        """The same with another charge; `dataclasses.replace` takes ten times as long."""
        return Charge(
            id=self.id,
            tenant=self.tenant,
            lane=self.lane,
            rank=self.rank,
            charged=charged,
            tenant_weight=self.tenant_weight,
            lane_weight=self.lane_weight,
            fallback=self.fallback,
            estimated=self.estimated,
            for_minimum=self.for_minimum,
        )

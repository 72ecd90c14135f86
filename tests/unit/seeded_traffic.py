"""Traffic from a fixed seed through the pure tree, for `test_policy_order.py`, which runs this in many processes.

Imports the policies and nothing else, so that such a process starts in a moment.
"""

from __future__ import annotations

import json
import random

from queueapp.policies.charge import Charge
from queueapp.policies.protocol import Candidate
from queueapp.policies.registry import POLICIES
from queueapp.policies.room import Limits
from queueapp.policies.tree import Tree

JOBS = 600
TENANTS = [f"tenant{number}" for number in range(12)]
LANES = ("main", "other", "third")


def order_of(policy: str) -> list[str]:
    """The ids in the order of their leases, under traffic with ties, pauses, ceilings, cancels and new weights."""
    chance, tree = random.Random(65), Tree(POLICIES[policy]())
    order: list[str] = []
    flying: list[Charge] = []
    for seq in range(JOBS):
        job = _job(chance, seq)
        tree.push(job)
        roll = chance.random()
        if roll < 0.1:
            tree.configure(job.tenant, chance.choice(["", job.lane]), _limits(chance))
        elif roll < 0.15:
            tree.remove(job.id)
        elif roll < 0.55 and (charge := tree.pick()) is not None:
            order.append(charge.id)
            flying.append(charge)
        elif roll > 0.65 and flying:
            done = flying.pop(chance.randrange(len(flying)))
            tree.settle(done, chance.choice([0.0, done.charged, 33.0]))
            tree.release(done.id)
    for charge in flying:
        tree.release(charge.id)
    for tenant, lane in list(tree.configured()):
        tree.configure(tenant, lane, Limits())
    return order + [charge.id for charge in iter(tree.pick, None)]


def levels_of(policy: str) -> list[int]:
    """One job of each of five priorities, each of another tenant: the priorities in the order of their leases."""
    tree = Tree(POLICIES[policy]())
    for seq, priority in enumerate([0, -50, 100, 50, -100]):
        tree.push(Candidate(id=str(priority), tenant=TENANTS[seq], seq=seq, priority=priority))
    return [int(charge.id) for charge in iter(tree.pick, None)]


def _job(chance: random.Random, seq: int) -> Candidate:
    return Candidate(
        id=f"{chance.getrandbits(64):016x}",
        tenant=chance.choice(TENANTS),
        lane=chance.choice(LANES),
        seq=seq,
        priority=chance.choice([-5, 0, 0, 5]),
        tier=chance.choice(["start", "start", "continue"]),
        cost=chance.choice([0.0, 1.0, 1.0, 7.5, 90.0]),
        ready_ms=seq // 50,
        deadline_ms=chance.choice([0, 400, 400, 900]),
    )


def _limits(chance: random.Random) -> Limits:
    return Limits(
        weight=chance.choice([0.5, 1.0, 3.0]), ceiling=chance.choice([None, 1, 2]), paused=chance.random() < 0.2
    )


if __name__ == "__main__":
    print(json.dumps({policy: [order_of(policy), levels_of(policy)] for policy in POLICIES}))

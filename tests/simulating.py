"""What the tests of the simulator share: workloads by hand, and a policy that listens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from queueapp.bench import profiles
from queueapp.bench.simulate import Ran
from queueapp.bench.workloads import Job, Workload
from queueapp.policies.protocol import Candidate
from queueapp.policies.tiered import Tiered


def flood(**more: Any) -> Workload:
    """Jobs of the default workload."""
    return profiles.load("flood").workload("multi_tenant", **more)


def workload(*jobs: tuple[int, str, int], slots: int = 1) -> Workload:
    """Jobs as (arrival ms, tenant, service ms); the big tenant is `big`."""
    made = [
        Job(number=number, at_us=at_ms * 1000, tenant=tenant, service_us=service_ms * 1000)
        for number, (at_ms, tenant, service_ms) in enumerate(jobs, start=1)
    ]
    return Workload(name="by hand", seed=0, slots=slots, load=1.0, big="big", jobs=made)


def starts(ran: Sequence[Ran]) -> list[tuple[int, int]]:
    """(number, start in ms) in the order of the starts."""
    return [(run.job.number, run.started_us // 1000) for run in ran]


class Listening(Tiered):
    """Notes what is charged at the root, and by how much it is corrected."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, float]] = []

    def rank(self, root: Any, job: Candidate, cost: float, weight: float) -> float:
        self.heard.append((f"ranked {job.tenant}", cost))
        return super().rank(root, job, cost, weight)

    def served(self, node: Any, child: str, rank: float, cost: float, weight: float) -> float:
        if child != "main":
            self.heard.append((f"served {child}", cost))
        return super().served(node, child, rank, cost, weight)

    def settled(self, node: Any, child: str, difference: float, weight: float, fallback: float) -> None:
        if child != "main":
            self.heard.append((f"settled {child}", difference))
        super().settled(node, child, difference, weight, fallback)

"""The fairness certificates as gauges: how even a pool is, how many of its tenants stand how, and each one's share.

Called by `collector`, which keeps one `FairnessGauges` and asks under its lock. Labels are bounded: METRICS_TENANTS
tenants of a pool have a name, those with most service first, and keep it for as long as the process lives; all others
stand together under `_other`, with their shares added up and the lag of the one that is most behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from prometheus_client.core import GaugeMetricFamily, Metric

from queueapp.conf import settings
from queueapp.inspection.fairness import Certificate, TenantShare, certificate
from queueapp.metrics import SHARD, TenantLabels

KEPT_S = 15.0
"""A certificate costs more than the rest of a scrape and speaks of minutes: it is kept for so long."""
JAIN = "ductor_pool_fairness_jain"
TENANTS = "ductor_pool_tenants"
SHARE = "ductor_tenant_share"
ENTITLED = "ductor_tenant_entitled_share"
LAG = "ductor_tenant_lag"
BOUND = "ductor_tenant_lag_bound"

FAMILIES: dict[str, tuple[str, str]] = {
    JAIN: (
        "of",
        "Jain's index over the tenants with demand: of what each was entitled to, of service per weight, of jobs.",
    ),
    TENANTS: ("state", "Tenants with work, by how they stand."),
    SHARE: ("tenant", "Part of the pool's service of the last five minutes that a tenant had."),
    ENTITLED: ("tenant", "Part of it that the tenant was entitled to: weighted max-min over the tenants with demand."),
    LAG: ("tenant", "How far a tenant in line is behind, in units of cost; under ring in jobs."),
    BOUND: ("tenant", "The most that the policy promises for that."),
}
"""Name → its label beside pool and shard, and its meaning."""


@dataclass(slots=True)
class _Row:
    """What stands under one label of a tenant."""

    share: float = 0.0
    entitled: float = 0.0
    lag: float | None = None
    bound: float = 0.0

    def add(self, one: TenantShare) -> None:
        self.share += one.share
        self.entitled += one.entitled_share
        if one.lag is not None and one.lag_bound is not None and (self.lag is None or one.lag > self.lag):
            self.lag, self.bound = one.lag, one.lag_bound


class FairnessGauges:
    """What is kept between scrapes. Not thread-safe."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._kept: dict[str, tuple[float, Certificate]] = {}
        self._labels: dict[str, TenantLabels] = {}

    def forget(self) -> None:
        """The next certificates are read anew, and names are given anew."""
        self._kept.clear()
        self._labels.clear()

    def of(self, pool: str) -> Certificate:
        """The certificate of a pool, at most fifteen seconds old."""
        until, kept = self._kept.get(pool, (0.0, None))
        if kept is None or self._clock() >= until:
            kept = certificate(pool)
            self._kept[pool] = self._clock() + KEPT_S, kept
        return kept

    def families(self, certificates: Sequence[Certificate]) -> Iterator[Metric]:
        """All families, with the samples of these pools."""
        found = {
            name: GaugeMetricFamily(name, text, labels=("pool", "shard", label))
            for name, (label, text) in FAMILIES.items()
        }
        for one in certificates:
            for what, number in (
                ("entitled", one.jain_entitled),
                ("service", one.jain_service),
                ("jobs", one.jain_count),
            ):
                found[JAIN].add_metric((one.pool, SHARD, what), number)
            for state, count in one.states.items():
                found[TENANTS].add_metric((one.pool, SHARD, state), count)
            for tenant, row in self._rows(one).items():
                labels = (one.pool, SHARD, tenant)
                found[SHARE].add_metric(labels, row.share)
                found[ENTITLED].add_metric(labels, row.entitled)
                if row.lag is not None:
                    found[LAG].add_metric(labels, row.lag)
                    found[BOUND].add_metric(labels, row.bound)
        yield from found.values()

    def _rows(self, one: Certificate) -> dict[str, _Row]:
        labels = self._labels.setdefault(one.pool, TenantLabels((), settings.metrics_tenants))
        rows: dict[str, _Row] = {}
        for share in sorted(one.tenants, key=lambda share: (-share.units, share.tenant)):
            rows.setdefault(labels.label(share.tenant), _Row()).add(share)
        return rows

"""How full the room for dead letters of each tenant is, as a gauge: an alert before the oldest go (`DEAD_MAX`).

Called by `collector`, which keeps one `DeadGauges` and asks under its lock. A tenant whose room is half full takes a
name, and keeps it for as long as the process lives; METRICS_TENANTS of a pool have one. `_other` is the fullest of all
others. A look at a pool is kept for a while, and reads a share of its tenants where there are thousands: with each
further one the figures come true.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from prometheus_client.core import GaugeMetricFamily, Metric

from queueapp.conf import settings
from queueapp.inspection.overview import PoolStatus
from queueapp.metrics import OTHER, SHARD, TenantLabels
from queueapp.store import shards

KEPT_S = 15.0
TENANTS_A_LOOK = 1_000
REMEMBERED = 100
"""Tenants of which no name is known are looked at again and again while they are among so many fullest."""
NAMED_FROM = 0.5
FILL = "ductor_tenant_dead_letters_fill"

FAMILIES: dict[str, tuple[str, str]] = {
    FILL: ("tenant", "Part of DEAD_MAX that the dead letters of a tenant fill; above 1 the oldest go."),
}
"""Name → its label beside pool and shard, and its meaning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """How full the rooms of a pool's tenants are."""

    pool: str
    fills: Mapping[str, float]
    """Label of the tenant → how full."""


@dataclass(slots=True)
class _Pool:
    labels: TenantLabels
    until: float = 0.0
    cursor: int = 0
    letters: dict[str, int] = field(default_factory=dict)
    """Tenant → its dead letters: those that have names, and the fullest of the others."""
    kept: Filled | None = None


class DeadGauges:
    """What is kept between scrapes. Not thread-safe."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._pools: dict[str, _Pool] = {}

    def forget(self) -> None:
        """The next look reads anew, and names are given anew."""
        self._pools.clear()

    def of(self, status: PoolStatus) -> Filled:
        """Of the pool that this is about, at most fifteen seconds old."""
        known = self._pools.setdefault(status.pool, _Pool(TenantLabels((), settings.metrics_tenants)))
        if known.kept is None or self._clock() >= known.until:
            self._look(status, known)
            known.kept = Filled(pool=status.pool, fills=_fills(known))
            known.until = self._clock() + KEPT_S
        return known.kept

    def families(self, looks: Sequence[Filled]) -> Iterator[Metric]:
        """All families, with the samples of these pools."""
        for name, (label, text) in FAMILIES.items():
            family = GaugeMetricFamily(name, text, labels=("pool", "shard", label))
            for look in looks:
                for tenant, fill in look.fills.items():
                    family.add_metric((look.pool, SHARD, tenant), fill)
            yield family

    def _look(self, status: PoolStatus, known: _Pool) -> None:
        if status.dead == 0:
            known.letters = dict.fromkeys(known.letters, 0)
            return
        reads = shards.reads(status.pool)
        known.cursor, page = reads.seen_tenants(known.cursor, TENANTS_A_LOOK)
        names = list(dict.fromkeys([*known.letters, *page]))
        sizes = reads.sizes([f"dead:{name}" for name in names])
        known.letters = dict(zip(names, sizes, strict=True))


def _fills(known: _Pool) -> dict[str, float]:
    """By label. Forgets those that are neither named nor among the fullest."""
    most = max(1, settings.dead_max)
    fills = {OTHER: 0.0}
    others = 0
    for tenant, letters in sorted(known.letters.items(), key=lambda entry: (-entry[1], entry[0])):
        fill = letters / most
        label = known.labels.label(tenant) if fill >= NAMED_FROM or tenant in known.labels.all else OTHER
        fills[label] = max(fill, fills.get(label, 0.0))
        if label == OTHER:
            others += 1
            if others > REMEMBERED or not letters:
                del known.letters[tenant]
    return fills

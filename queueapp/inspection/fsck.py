"""The recount of live pools, for every skin: what is not as it must be, and what of it was put right.

`store/recount.py` has the steps and why what it finds is proven. Every repair is logged with the job that it is about.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from queueapp.store import shards
from queueapp.store.records import Difference
from queueapp.store.recount import Recount

logger = logging.getLogger(__name__)

OF_JOBS = frozenset(
    {"index", "slot", "held", "lost", "state", "member", "waiter", "stop", "quarantine", "once", "child"},
)
"""Kinds of findings whose name is that of a job, mostly."""
ID = re.compile(r"[A-Za-z0-9_-]{22}")

BY_HAND = {
    "lost": "Its attempt may still end well. When its lease runs out instead, the job is set aside.",
    "quarantine": "Its row could not be read, so that it is no job any more; the store keeps what is there as "
    "evidence, in the keys job:<id> and run:<id>. Enqueue the work again if it is needed, then delete those keys and "
    "take the id out of the set `quarantine`.",
    "keys": "The key set of its concurrency keys is gone, so that no limit holds it. Cancel the job and enqueue it "
    "again.",
    "stray": "No release of Ductor reads this key. Delete it, once you know who wrote it.",
    "state": "No release of Ductor writes such a state. Look at the job's keys job:<id> and run:<id>.",
}
"""What to do about what no script can put right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that is not as it must be."""

    kind: str
    name: str
    """What it is about; a job has its public id."""
    what: str
    state: str
    """mendable, mended, by_hand."""
    remedy: str
    """What to do by hand; "" = nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """One pool."""

    pool: str
    looked_at: int
    """Jobs and other keys."""
    findings: Sequence[Finding]
    settled: bool
    """False: with `repair`, something was still being found when it gave up; say the same again."""

    @property
    def well(self) -> bool:
        """Nothing is wrong any more."""
        return self.settled and all(finding.state == "mended" for finding in self.findings)


def check(pool: str, *, repair: bool, progress: Callable[[str, int], object] = lambda stage, number: None) -> Checked:
    """Recounts one pool while it works; may take a while, and may be interrupted at any moment.

    `progress` is called after every step with what it is at, and how many keys it has looked at. Raises StoreError.
    """
    # With the long time-out: a step is short, but the server may have other things to do.
    store = shards.store(pool)
    recount = Recount(store, repair=repair)
    for stage in recount.run():
        progress(stage, recount.looked_at)
    findings = list(_findings(recount.findings, store.keys.public_id))
    for finding in findings:
        if finding.state == "mended":
            logger.warning("fsck mended: %s %s %s", finding.kind, finding.name, finding.what, extra={"pool": pool})
    return Checked(pool=pool, looked_at=recount.looked_at, findings=findings, settled=recount.settled)


def _findings(found: Sequence[Difference], public_id: Callable[[str], str]) -> Iterator[Finding]:
    for one in found:
        is_job = one.kind in OF_JOBS and ID.fullmatch(one.name)
        yield Finding(
            kind=one.kind,
            name=public_id(one.name) if is_job else one.name,
            what=one.what,
            state=one.word,
            remedy=BY_HAND.get(one.kind, "") if one.word == "by_hand" else "",
        )

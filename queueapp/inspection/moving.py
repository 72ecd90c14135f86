"""Moving jobs to another pool, and back where that other pool cannot have them. What each step does is in `transit`."""

from __future__ import annotations

from collections.abc import Sequence

from queueapp.errors import InvalidOption
from queueapp.inspection.actions import ChunkAct
from queueapp.states import Outcome, State
from queueapp.store import shards, transit
from queueapp.store.views import JobRecord


def moving_to(target: str) -> ChunkAct:
    """Waiting jobs of a pool to `target`; what runs, has ended or has a singleton stays. One word per id."""
    keys = shards.keys(target)
    to = f"{keys.code}.{keys.shard}"
    begun: set[str] = set()

    def act(pool: str, ids: Sequence[str]) -> Sequence[str]:
        if shards.keys(pool) == keys:
            raise InvalidOption(f"The jobs of {pool!r} cannot be moved to {target!r}: these are one pool.")
        store = shards.store(pool)
        words = store.depart(ids, to)
        if pool in begun:
            transit.bring(pool, store, _left(ids, words))
        else:  # once, also for movers that died before
            transit.deliver(pool, store)
            begun.add(pool)
        return _became(pool, ids, words, "moving")

    return act


def taking_back() -> ChunkAct:
    """Jobs on their way to another pool come back to their place in line, unless that pool has them. A word per id."""

    def act(pool: str, ids: Sequence[str]) -> Sequence[str]:
        store = shards.store(pool)
        words = store.recall([(job_id, 0) for job_id in ids])
        transit.bring(pool, store, _left(ids, words, "recalled"))
        return _became(pool, ids, words, "recalled")

    return act


def _left(ids: Sequence[str], words: Sequence[str], meant: str = "moving") -> list[str]:
    return [job_id for job_id, word in zip(ids, words, strict=True) if word == meant]


def _became(pool: str, ids: Sequence[str], words: Sequence[str], meant: str) -> list[str]:
    """The words, of those that are `meant` as they stand now."""
    left = _left(ids, words, meant)
    records = dict(zip(left, shards.reads(pool).letters(left) if left else [], strict=True))
    return [_now(word, records.get(job_id)) for job_id, word in zip(ids, words, strict=True)]


def _now(word: str, record: JobRecord | None) -> str:
    if record is None or record.state is State.MOVING:
        return word
    if record.outcome is Outcome.MOVED:
        return "moved"
    return "cancelled" if record.outcome is Outcome.CANCELLED else "back" if word == "recalled" else word

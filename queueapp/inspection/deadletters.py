"""Dead letters of a pool, newest first, by page or one after another."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from queueapp.inspection.jobs import JobView, view
from queueapp.store import shards

PAGE = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetters:
    """A page of dead letters, and how many there are in all."""

    pool: str
    total: int
    letters: tuple[JobView, ...]


def dead_letters(pool: str, *, tenant: str = "", offset: int = 0, count: int = 50) -> DeadLetters:
    """One page, newest first; of one tenant when one is given."""
    reads = shards.reads(pool)
    letters = tuple(view(pool, record) for record in reads.dead(tenant=tenant, offset=offset, count=count))
    return DeadLetters(pool=pool, total=reads.dead_count(tenant=tenant), letters=letters)


def every_dead_letter(pool: str, *, tenant: str = "", task: str = "", reason: str = "") -> Iterator[JobView]:
    """All that match, collected before the first is given, so that acting on them does not shift the pages."""
    found: list[JobView] = []
    offset = 0
    while True:
        page = dead_letters(pool, tenant=tenant, offset=offset, count=PAGE).letters
        found += [
            letter
            for letter in page
            if (not task or letter.record.task == task) and (not reason or letter.record.reason == reason)
        ]
        if len(page) < PAGE:
            break
        offset += PAGE
    yield from found

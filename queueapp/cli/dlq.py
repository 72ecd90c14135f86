"""`manage.py ductor dlq list|show|retry|discard`: dead letters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from django.core.management.base import CommandError

from queueapp.cli.job import as_mapping
from queueapp.cli.table import as_json, table
from queueapp.inspection.deadletters import dead_letters, every_dead_letter
from queueapp.inspection.jobs import find_job
from queueapp.inspection.pools import all_pools, require
from queueapp.store import shards

BATCH = 250


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which dead letters: the ids given, or all of a pool that match."""

    ids: Sequence[str] = ()
    pool: str = ""
    tenant: str = ""
    task: str = ""
    reason: str = ""
    everything: bool = False


def listing(pool: str, *, tenant: str, offset: int, count: int, json: bool) -> str:
    """A page of dead letters of one pool, or of every pool, newest first."""
    known = all_pools()
    require([pool] if pool else [], known)
    pages = [dead_letters(name, tenant=tenant, offset=offset, count=count) for name in ([pool] if pool else known)]
    if json:
        return as_json(
            [
                {
                    "pool": page.pool,
                    "total": page.total,
                    "letters": [as_mapping(each, payload=False) for each in page.letters],
                }
                for page in pages
            ]
        )
    rows = [
        (
            letter.id,
            page.pool,
            letter.record.tenant,
            letter.record.task,
            letter.record.reason,
            letter.record.error_count,
            letter.record.crashes,
            letter.ended_at,
        )
        for page in pages
        for letter in page.letters
    ]
    if not rows:
        return "No dead letters."
    shown = table(("id", "pool", "tenant", "task", "reason", "errors", "crashes", "died"), rows)
    total = sum(page.total for page in pages)
    return shown if total == len(rows) else f"{shown}\n{len(rows)} of {total}; go on with --offset {offset + count}"


def retry(selection: Selection, *, confirm: Callable[[str], bool]) -> str:
    """Dead letters back to work, with fresh budgets."""
    return _act(selection, "retry", "retried", lambda pool, ids: shards.store(pool).retry_from_dlq(ids), confirm)


def discard(selection: Selection, *, confirm: Callable[[str], bool]) -> str:
    """Dead letters away for good."""
    return _act(selection, "discard", "discarded", lambda pool, ids: shards.store(pool).discard(ids), confirm)


def _act(
    selection: Selection,
    verb: str,
    done: str,
    act: Callable[[str, Sequence[str]], Sequence[str]],
    confirm: Callable[[str], bool],
) -> str:
    chosen, gone = _chosen(selection)
    total = sum(map(len, chosen.values()))
    if total == 0:
        return "No dead letter matches."
    if not confirm(f"{verb.capitalize()} {total} dead letter{'s' if total > 1 else ''} of {', '.join(chosen)}?"):
        return "Nothing was changed."
    counts: dict[str, int] = {"gone": gone} if gone else {}
    for pool, ids in chosen.items():
        for start in range(0, len(ids), BATCH):
            for word in act(pool, ids[start : start + BATCH]):
                counts[word] = counts.get(word, 0) + 1
    return ", ".join(
        f"{counts.pop(done, 0)} {done}" if word == done else f"{counts[word]} {word}" for word in _order(counts, done)
    )


def _order(counts: dict[str, int], first: str) -> list[str]:
    return [first, *sorted(word for word in counts if word != first)]


def _chosen(selection: Selection) -> tuple[dict[str, list[str]], int]:
    """Inner ids by pool, and how many of the ids given are of no job."""
    if selection.ids:
        chosen: dict[str, list[str]] = {}
        gone = 0
        for public_id in selection.ids:
            found = find_job(public_id)
            if found is None:
                gone += 1
            else:
                chosen.setdefault(found.pool, []).append(found.record.id)
        if not chosen:
            raise CommandError(
                f"No job is called {', '.join(map(repr, selection.ids))}; `ductor dlq list` shows the ids."
            )
        return chosen, gone
    if not (selection.everything or selection.tenant or selection.task or selection.reason):
        raise CommandError("Say which: ids, or --tenant, --task, --reason, or --all.")
    known = all_pools()
    require([selection.pool] if selection.pool else [], known)
    by_pool: dict[str, list[str]] = {}
    for pool in [selection.pool] if selection.pool else known:
        letters = every_dead_letter(pool, tenant=selection.tenant, task=selection.task, reason=selection.reason)
        ids = [letter.record.id for letter in letters]
        if ids:
            by_pool[pool] = ids
    return by_pool, 0

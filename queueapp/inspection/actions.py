"""What people do to jobs: retry, discard, cancel. One function for each, whatever the skin (admin, REST, terminal).

Works through the ids in bounded batches and answers how many became what; an id that is none, or whose job is gone, is
counted and stops nothing. What was done to dead letters is written down as DeadLetterInspection rows, ids and reasons
only; when the database is away, that is logged and the action stands.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from django.db import Error as DatabaseError
from django.db import transaction

from queueapp.codec import well_formed
from queueapp.conf import settings
from queueapp.errors import StoreError
from queueapp.inspection.jobs import JobView, by_pool, view
from queueapp.models import DeadLetterInspection
from queueapp.store import shards

logger = logging.getLogger(__name__)

BATCH = 250
Act = Callable[[str, Sequence[str]], Sequence[str]]
Action = DeadLetterInspection.Action

WORDS = {
    "retried": "{} retried",
    "discarded": "{} discarded",
    "cancelled": "{} cancelled",
    "skipped": "{} skipped: another job has their singleton",
    "already": "{} skipped: not in that state any more",
    "active": "{} skipped: running",
    "gone": "{} skipped: no such job",
    "unreached": "{} not reached",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What became of the jobs of one action."""

    counts: Mapping[str, int] = field(default_factory=dict)
    """Word of the store → how many; `gone` also for ids that are none, `unreached` for those after a `fault`."""
    fault: str = ""
    """Why the action ended before its end."""

    def __add__(self, other: Done) -> Done:
        words = [word for word in WORDS if word in self.counts or word in other.counts]
        counts = {word: self.counts.get(word, 0) + other.counts.get(word, 0) for word in words}
        return Done(counts=counts, fault=self.fault or other.fault)

    def summary(self) -> str:
        """One plain sentence."""
        parts = [text.format(self.counts[word]) for word, text in WORDS.items() if self.counts.get(word)]
        return (", ".join(parts) or "nothing to do") + (f" ({self.fault})" if self.fault else "") + "."


def retry(ids: Sequence[str], *, by: str = "", note: str = "") -> Done:
    """Dead letters back to work, with fresh budgets. `ids` are public, of any mix of pools."""

    def act(pool: str, inner: Sequence[str]) -> Sequence[str]:
        return shards.store(pool).retry_from_dlq(inner)

    return _each(ids, _recorded(act, Action.RETRIED, by, note))


def discard(ids: Sequence[str], *, by: str = "", note: str = "") -> Done:
    """Dead letters away for good, with their arguments."""

    def act(pool: str, inner: Sequence[str]) -> Sequence[str]:
        return shards.store(pool).discard(inner)

    return _each(ids, _recorded(act, Action.DISCARDED, by, note))


def cancel(ids: Sequence[str], *, by: str = "", note: str = "") -> Done:
    """Waiting jobs will not run. What runs already is left alone. `by` and `note` go to the log."""

    def act(pool: str, inner: Sequence[str]) -> Sequence[str]:
        return shards.store(pool).cancel(inner)

    done = _each(ids, act)
    logger.info("Cancelled jobs: %s", done.summary(), extra={"by": by, "note": note})
    return done


def record_export(letters: Iterable[JobView], *, by: str = "", note: str = "") -> None:
    """Writes down that these dead letters were exported."""
    _write([_row(letter, Action.EXPORTED, by=by, note=note) for letter in letters])


def record_note(letter: JobView, note: str, *, by: str = "") -> None:
    """Writes down a remark about a dead letter. Raises DatabaseError: unlike the others this does nothing else."""
    _row(letter, Action.NOTED, by=by, note=note).save()


def _each(ids: Sequence[str], act: Act) -> Done:
    """Does `act` to the ids, pool by pool, in batches. Raises StoreError when nothing at all could be done."""
    counts = dict.fromkeys(WORDS, 0)
    fault = ""
    pools = by_pool(ids)
    counts["gone"] = len(ids) - sum(map(len, pools.values()))
    batches = [
        (pool, inner[first : first + BATCH]) for pool, inner in pools.items() for first in range(0, len(inner), BATCH)
    ]
    for position, (pool, batch) in enumerate(batches):
        try:
            words = act(pool, batch)
        except StoreError as error:
            if position == 0:
                raise
            fault = str(error)
            counts["unreached"] = sum(len(rest) for _, rest in batches[position:])
            break
        for word in words:
            counts[word] += 1
    return Done(counts={word: count for word, count in counts.items() if count}, fault=fault)


def _recorded(act: Act, action: Action, by: str, note: str) -> Act:
    """`act`, and a row for each letter that it changed."""

    def recorded(pool: str, inner: Sequence[str]) -> Sequence[str]:
        letters = dict(zip(inner, shards.reads(pool).letters(inner), strict=True))
        words = act(pool, inner)
        rows = {}
        for job_id, word in zip(inner, words, strict=True):
            letter = letters[job_id]
            if word == action.value and letter is not None:
                rows[job_id] = _row(view(pool, letter), action, outcome=word, by=by, note=note)
        _write(list(rows.values()))
        return words

    return recorded


def _row(letter: JobView, action: Action, *, by: str, note: str, outcome: str = "") -> DeadLetterInspection:
    error = letter.last_error
    return DeadLetterInspection(
        job_id=letter.id,
        pool=letter.pool,
        tenant=letter.record.tenant,
        task=letter.record.task[:512],
        reason=letter.record.reason[:64],
        error=_kept(str(error.detail.get("class", "")))[:255] if error is not None else "",
        action=action,
        outcome=outcome,
        note=_kept(note),
        by=_kept(by)[:200],
    )


def _kept(text: str) -> str:
    """The text as every database takes it: with a NUL in its note, what was done would not be written down."""
    return well_formed(text).replace("\0", "")


def _write(rows: Sequence[DeadLetterInspection]) -> None:
    if not rows:
        return
    try:
        with transaction.atomic(using=settings.database):
            DeadLetterInspection.objects.bulk_create(rows, batch_size=BATCH)
    except DatabaseError as error:
        logger.error(
            "What was done to %d dead letters could not be written down: %s",
            len(rows),
            error,
            extra={"action": rows[0].action, "by": rows[0].by, "job_ids": [row.job_id for row in rows]},
        )

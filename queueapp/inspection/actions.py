"""What one chunk of an action does, how it is written down, what became of all of it. `bulk` does it to any number.

An id whose job is gone, or not in the right state, has a word of its own and stops nothing. What was done to dead
letters is written down as DeadLetterInspection rows, ids and reasons only; when the database is away, that is logged
and the action stands.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from django.db import Error as DatabaseError
from django.db import transaction

from queueapp.codec import well_formed
from queueapp.conf import settings
from queueapp.inspection.jobs import JobView, view
from queueapp.models import DeadLetterInspection
from queueapp.store import shards

logger = logging.getLogger(__name__)

ChunkAct = Callable[[str, Sequence[str]], Sequence[str]]
Action = DeadLetterInspection.Action

WORDS = {
    "retried": "{} retried",
    "moved": "{} moved",
    "moving": "{} on their way: say the same again, or let a scheduler go on",
    "back": "{} back in line",
    "recalled": "{} asked back: in line again within a minute, unless the other pool has them; say the same again, or "
    "let a scheduler go on",
    "lost": "{} left: nobody can read their rows (`ductor fsck`)",
    "held": "{} left where they are: a singleton, a debounce, a parent or children of theirs are of this pool",
    "discarded": "{} discarded",
    "cancelled": "{} cancelled",
    "stopping": "{} told to stop",
    "skipped": "{} skipped: another job has their singleton",
    "already": "{} skipped: not in that state any more",
    "active": "{} skipped: running",
    "gone": "{} skipped: no such job",
    "unreached": "{} not reached",
}

SUCCESS = ("retried", "moved", "back", "discarded", "cancelled", "stopping")


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What became of the jobs of one action."""

    counts: Mapping[str, int] = field(default_factory=dict)
    """Word of the store → how many; `gone` also for ids that are none, `unreached` for those after a `fault`."""
    fault: str = ""
    """Why the action ended before its end."""
    more: bool = False
    """It ended where one request ends; others may match."""
    place: str = ""
    """Of a selection, where it ended before its end: what the next request goes on from."""
    until_ms: int = 0
    """Of dead letters that were laid out at a rate: when the next one is due."""

    @classmethod
    def of(cls, words: Sequence[str]) -> Done:
        return cls(counts=Counter(words))

    @property
    def done(self) -> int:
        """How many are now as was wanted, by this."""
        return sum(self.counts.get(word, 0) for word in SUCCESS)

    @property
    def refused(self) -> int:
        """How many the store would not, as they stand."""
        return sum(self.counts.get(word, 0) for word in ("skipped", "active"))

    @property
    def changed(self) -> int:
        """How many were not in that state any more, or gone."""
        return sum(self.counts.get(word, 0) for word in ("already", "gone"))

    def __add__(self, other: Done) -> Done:
        words = [word for word in WORDS if word in self.counts or word in other.counts]
        counts = {word: self.counts.get(word, 0) + other.counts.get(word, 0) for word in words}
        return Done(
            counts=counts,
            fault=self.fault or other.fault,
            more=self.more or other.more,
            place=self.place or other.place,
            until_ms=max(self.until_ms, other.until_ms),
        )

    def summary(self) -> str:
        """One plain sentence."""
        parts = [text.format(self.counts[word]) for word, text in WORDS.items() if self.counts.get(word)]
        return (", ".join(parts) or "nothing to do") + (f" ({self.fault})" if self.fault else "") + "."


def retrying(by: str, note: str, laid_out: Callable[[str], tuple[float, float]] = lambda _: (0.0, 0.0)) -> ChunkAct:
    """Dead letters back to work, with fresh budgets. `laid_out`, asked for each chunk right before it is sent: in how
    many ms the first of them is due, and how long after one the next (`Store.retry_from_dlq`).
    """

    def act(pool: str, inner: Sequence[str]) -> Sequence[str]:
        first_ms, gap_ms = laid_out(pool)
        return shards.store(pool).retry_from_dlq(inner, first_ms=first_ms, gap_ms=gap_ms)

    return _recorded(act, Action.RETRIED, by, note)


def discarding(by: str, note: str) -> ChunkAct:
    """Dead letters away for good, with their arguments."""

    def act(pool: str, inner: Sequence[str]) -> Sequence[str]:
        return shards.store(pool).discard(inner)

    return _recorded(act, Action.DISCARDED, by, note)


def record_export(letters: Iterable[JobView], *, by: str = "", note: str = "") -> None:
    """Writes down that these dead letters were exported."""
    _write([_row(letter, Action.EXPORTED, by=by, note=note) for letter in letters])


def record_note(letter: JobView, note: str, *, by: str = "") -> None:
    """Writes down a remark about a dead letter. Raises DatabaseError: unlike the others this does nothing else."""
    _row(letter, Action.NOTED, by=by, note=note).save()


def record_edit(letter: JobView, places: Sequence[str], *, by: str = "", note: str = "") -> None:
    """Writes down which arguments of a dead letter were edited; never what they were, or are."""
    what = f"edited: {', '.join(places)}"
    _write([_row(letter, Action.EDITED, outcome="rewritten", by=by, note=f"{what}; {note}" if note else what)])


def _recorded(act: ChunkAct, action: Action, by: str, note: str) -> ChunkAct:
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
            DeadLetterInspection.objects.bulk_create(rows)
    except DatabaseError as error:
        logger.error(
            "What was done to %d dead letters could not be written down: %s",
            len(rows),
            error,
            extra={"action": rows[0].action, "by": rows[0].by, "job_ids": [row.job_id for row in rows]},
        )

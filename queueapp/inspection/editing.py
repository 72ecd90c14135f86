"""Corrects the arguments of a dead letter, for every skin (admin, REST, terminal): first what would change, then so.

`draft` judges and changes nothing: it puts together what was given with what is there (`edits`), checks it as an
enqueue would be checked (`producer.preparation`), and asks the store whether it fits. `save` does it, writes down who
did, and retries the letter if that is wanted. What was edited since the caller looked is refused, and told. What a job
holds by its arguments (concurrency keys, a singleton, a debounce) stays: one with others is another job, to be enqueued
anew.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db import Error as DatabaseError

from queueapp.codec import decode_arguments
from queueapp.errors import (
    EditedMeanwhile,
    InvalidOption,
    KeysWouldChange,
    NotDead,
    NothingEdited,
)
from queueapp.inspection import actions, bulk
from queueapp.inspection.edits import ABSENT, Change, differences, merged
from queueapp.inspection.jobs import JobView
from queueapp.inspection.masking import masked_arguments
from queueapp.models import DeadLetterInspection
from queueapp.moments import moment
from queueapp.producer.preparation import derived, encoded
from queueapp.producer.signatures import misfit
from queueapp.producer.task import DuctorTask, find, unchecked
from queueapp.states import State
from queueapp.store import shards
from queueapp.store.ids import new_id
from queueapp.store.records import Rewritten

logger = logging.getLogger(__name__)

PLACE = re.compile(r"args(\[\d+\])?|kwargs\.[^.\[]*")
"""An argument, at the head of a place in it."""
REMEDY = "Discard it, and enqueue the task anew with the arguments that are meant."


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """Other arguments for a dead letter, which the store would take at the moment when they were judged."""

    job: JobView = field(repr=False)
    changes: tuple[Change, ...]
    """Where they differ from those that it has, masked."""
    payload: bytes = field(repr=False)
    keys: tuple[str, ...]
    singleton: str
    begins_anew: bool
    """Its last run saved a checkpoint, which goes with the arguments that it was made for."""
    token: str = field(default_factory=new_id)

    @property
    def places(self) -> tuple[str, ...]:
        """The arguments that change, without anything of their contents."""
        found = (PLACE.match(change.place) for change in self.changes)
        return tuple(dict.fromkeys(place[0] for place in found if place is not None))


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """What became of it."""

    edits: int
    """How often the letter has been edited by now."""
    retried: actions.Done | None
    """None: nobody wanted it retried."""


def draft(
    job: JobView,
    *,
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    edits: int | None = None,
) -> Draft:
    """What would become of `job` with these arguments, all of them; None leaves a half of them as it is.

    `edits` is how often it had been edited when the caller looked; None: as `job` was read. Raises NotDead,
    NothingEdited, EditedMeanwhile, KeysWouldChange, UnknownTask, and what an enqueue would be refused for.
    """
    record = job.record
    if record.state is not State.DEAD or record.payload is None:
        raise NotDead(f"{job.id} is no dead letter: it is {job.state}. Nothing was changed.")
    task = find(record.task)
    try:
        old_args, old_kwargs, options = decode_arguments(record.payload)
    except ValueError as error:
        raise InvalidOption(f"args cannot be read by this release, so that nobody can edit them. {error}") from None
    task = unchecked(task, typed=options.get("typed", task.typed))
    sensitive = options.get("sensitive", ())
    shown_args, shown_kwargs = masked_arguments(record.task, old_args, old_kwargs, sensitive)
    new_args = old_args if args is None else merged(list(args), shown_args, old_args, "args")
    new_kwargs = old_kwargs if kwargs is None else merged(dict(kwargs), shown_kwargs, old_kwargs, "kwargs")
    masked = masked_arguments(record.task, new_args, new_kwargs, sensitive)
    changes = (
        *differences(list(old_args), list(new_args), shown_args, masked[0], "args"),
        *differences(old_kwargs, new_kwargs, shown_kwargs, masked[1], "kwargs"),
    )
    if not changes:
        raise NothingEdited(f"{job.id} has these arguments already; nothing was changed. Retry it as it is.")
    if edits is not None and edits != record.edits:
        raise _edited(job, record.edits, record.edited_ms)
    if why := misfit(task, new_args, new_kwargs):
        raise InvalidOption(f"kwargs and args do not fit {record.task}: {why}.")
    payload = encoded(task, new_args, new_kwargs, options)
    held = derived(task, new_args, new_kwargs, record.tenant)
    made = Draft(
        job=job,
        changes=changes,
        payload=payload,
        keys=tuple(key.digest for key in held.keys),
        singleton=held.singleton.digest if held.singleton is not None else "",
        begins_anew=shards.reads(job.pool).checkpoint(record.id) is not None,
    )
    differing = _differing(task, (old_args, old_kwargs), (new_args, new_kwargs), record.tenant)
    _require(made, _send(made, commit=False), differing)
    if debounces := [name for name in differing if name.startswith("debounce")]:
        raise _others(job, debounces)
    return made


def save(draft: Draft, *, by: str = "", note: str = "", retry: bool = False) -> Saved:
    """Gives the letter its new arguments, writes down who did it, and sends it back to work if that is wanted.

    Raises what `draft` does when something else happened to the letter since. Once they are saved they stay, whatever
    becomes of the retry.
    """
    answer = _send(draft, commit=True)
    _require(draft, answer, [])
    job = draft.job
    logger.info(
        "Edited the arguments of a dead letter",
        extra={"job_id": job.id, "task": job.record.task, "places": list(draft.places), "by": by, "note": note},
    )
    actions.record_edit(job, draft.places, by=by, note=note)
    return Saved(edits=answer.edits, retried=bulk.retry_many([job.id], by=by, note=note) if retry else None)


def _send(draft: Draft, *, commit: bool) -> Rewritten:
    record = draft.job.record
    return shards.store(draft.job.pool).rewrite(
        record.id,
        draft.payload,
        edits=record.edits,
        token=draft.token,
        keys=draft.keys,
        singleton=draft.singleton,
        commit=commit,
    )


def _require(draft: Draft, answer: Rewritten, differing: Sequence[str]) -> None:
    """Raises what the store would not."""
    match answer.word:
        case "already" | "gone":
            raise NotDead(f"{draft.job.id} is no dead letter any more; nothing was changed.")
        case "changed":
            raise _edited(draft.job, answer.edits, answer.at_ms)
        case "keys" | "singleton":
            raise _others(draft.job, [name for name in differing if not name.startswith("debounce")])


def _others(job: JobView, differing: Sequence[str]) -> KeysWouldChange:
    """Names what would change by its pattern: its value is one of the arguments, which not everybody may see."""
    if not differing:
        return KeysWouldChange(
            f"{job.id} holds concurrency keys or a singleton that {job.record.task} does not give it today: another "
            f"release or .using() did. Nobody can tell whether they would stay, so nothing was changed. {REMEDY}"
        )
    verb = "follows" if len(differing) == 1 else "follow"
    return KeysWouldChange(
        f"{' and '.join(differing)} {verb} from what was edited, and a job keeps what it holds; nothing was changed. "
        f"{REMEDY}"
    )


def _differing(task: DuctorTask, old: Any, new: Any, tenant: str) -> list[str]:
    """What the two give differently, in words. Arguments that give nothing at all, as those that do not fit the task
    any more, differ in nothing."""

    def of(arguments: tuple[Sequence[Any], Mapping[str, Any]], **only: Any) -> object:
        wanted = {"debounce": None, "singleton": None, "concurrency": ()} | only
        try:
            held = derived(unchecked(task, **wanted), *arguments, tenant)
        except InvalidOption:
            return ABSENT
        return held.debounce, held.singleton, [key.digest for key in held.keys]

    def differ(**only: Any) -> bool:
        before, after = of(old, **only), of(new, **only)
        return before is not ABSENT and before != after

    found = [f"concurrency key {key.pattern!r}" for key in task.concurrency if differ(concurrency=(key,))]
    if task.singleton is not None and differ(singleton=task.singleton):
        key = task.singleton.key
        found.append("singleton of equal arguments" if key is None else f"singleton {key!r}")
    if task.debounce is not None and differ(debounce=task.debounce):
        found.append(f"debounce {task.debounce.key!r}")
    return found


def _edited(job: JobView, edits: int, at_ms: int) -> EditedMeanwhile:
    """Says who did, when, and to which arguments, as far as that was written down."""
    at = moment(at_ms)
    when = f" at {at:%Y-%m-%d %H:%M:%S %Z}" if at is not None else ""
    who = ""
    try:
        row = DeadLetterInspection.objects.filter(job_id=job.id, action=actions.Action.EDITED).order_by("-id").first()
    except DatabaseError:
        row = None
    if row is not None:
        who = f" by {row.by or 'somebody'} ({row.note})"
    return EditedMeanwhile(
        f"{job.id} was edited meanwhile{when}{who}; nothing was changed. Look at what it has now, and edit that.",
        edits=edits,
    )

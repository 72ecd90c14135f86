"""The shape of every request: bodies and query parameters. What is unknown is refused by name, never ignored: of every
request by `view.DuctorView.initial`, of the items of a bulk request by `Strict` itself.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from django.http import QueryDict
from django.utils.translation import gettext_lazy as _
from rest_framework import serializers

from queueapp.api.faults import shown
from queueapp.api.fields import Digits, Flag, Moment, Name, Names, Seconds, Text, WholeNumber, Word
from queueapp.codec import encode_arguments
from queueapp.conf import DEFAULT_POOL
from queueapp.inspection.bulk import RATE
from queueapp.names import LANE_FORM, POOL_FORM, TASK_FORM, TENANT_FORM
from queueapp.policies.protocol import PRIORITY_MAX, PRIORITY_MIN
from queueapp.producer.discovery import load_tasks, registry
from queueapp.producer.options import DELAY_MAX_S, EXPIRES_MAX_S
from queueapp.producer.signatures import misfit
from queueapp.producer.task import DuctorTask
from queueapp.states import State

TASK_NAME_MAX = 512
IDEMPOTENCY_KEY_MAX = 255
NOTE_MAX = 2_000
BULK_MAX = 100
"""Most jobs of one bulk request, and most dead letters of one request to retry them."""
PAGE_SIZE = 50
PAGE_MAX = 100
"""Larger pages are cut to this size."""
TENANT_REMEDY = _("A tenant's id has up to 64 of A–Z, a–z, 0–9 and “. _ : @ -”, and no “_” first.")
TASK_REMEDY = _("A task is called by its dotted name, such as “shop.tasks.make_report”.")
POOL_REMEDY = _("A pool's name has up to 64 of a–z, 0–9 and “_ -”, a letter or digit first.")
ID_FORM = re.compile(r"[A-Za-z0-9._-]{1,64}")
GROUP_FORM = re.compile(r"[0-9a-f]{12}")
CURSOR_REMEDY = _("This is no cursor of ours: take “next” of the page before.")
CURSOR_FORM = re.compile(r"[A-Za-z0-9.,:@_-]{1,200}")
PLACE_FORM = re.compile(r"[A-Za-z0-9_-]{1,800}")


def idempotency_key(key: str | None) -> str | None:
    """The key as given, checked; None for none."""
    if key is not None and not (1 <= len(key) <= IDEMPOTENCY_KEY_MAX and key.isascii() and key.isprintable()):
        raise serializers.ValidationError(
            _("Use 1 to %(most)d printable ASCII characters.") % {"most": IDEMPOTENCY_KEY_MAX}
        )
    return key


class Strict(serializers.Serializer[dict[str, Any]]):
    """Refuses unknown fields by name, so that a misspelt one is not ignored. Itself it knows none: no body."""

    unknown: Any = _("Unknown field; known are: %(known)s.")

    def refuse_unknown(self, given: Collection[str]) -> None:
        """Raises ValidationError for the names that are none of ours; says which are."""
        if names := sorted(set(given) - set(self.fields)) if given else ():
            known = ", ".join(self.fields) or _("none")
            raise serializers.ValidationError({shown(name): [self.unknown % {"known": known}] for name in names[:20]})

    def to_internal_value(self, data: Any) -> dict[str, Any]:
        if isinstance(data, Mapping):
            self.refuse_unknown(data)
        values: dict[str, Any] = super().to_internal_value(data)
        return values


class OfPool(Strict):
    """What is about one pool."""

    pool = Name(POOL_FORM, POOL_REMEDY, required=False, default=DEFAULT_POOL, help_text=_("Name of the pool."))


class OfTenant(Strict):
    """What is about one tenant, or all for whom one may speak."""

    tenant = Name(
        TENANT_FORM,
        TENANT_REMEDY,
        required=False,
        help_text=_(
            "For whom. Whoever may speak for one tenant need not say; who may for all and does not, means all."
        ),
    )


class OfLane(Strict):
    """What may be about one lane."""

    lane = Name(LANE_FORM, _("A lane has up to 64 of A–Z, a–z, 0–9 and “. _ : @ -”."), required=False)


class OfTask(Strict):
    """What may be about the jobs of one task."""

    task = Name(
        TASK_FORM,
        TASK_REMEDY,
        required=False,
        max_length=TASK_NAME_MAX,
        help_text=_("Only jobs of the task of this name."),
    )


class OfDeath(Strict):
    """What may be about dead letters of one kind."""

    reason = Text(required=False, max_length=64, help_text=_("Only those that died of this."))
    group = Name(
        GROUP_FORM, _("A group has 12 of 0–9 and a–f."), required=False, help_text=_("Only those of this group.")
    )


class JobRequest(OfLane):
    """A job to start."""

    task = Text(max_length=TASK_NAME_MAX, help_text=_("Dotted name of a task that is declared with api=True."))
    args = serializers.ListField(required=False, default=list)
    kwargs = serializers.DictField(required=False, default=dict)
    tenant = Name(
        TENANT_FORM,
        TENANT_REMEDY,
        required=False,
        help_text=_("For whom; needed only by those who may speak for several."),
    )
    pool = Name(POOL_FORM, POOL_REMEDY, required=False, help_text=_("The task's own unless named."))
    priority = WholeNumber(
        required=False, min_value=PRIORITY_MIN, max_value=PRIORITY_MAX, help_text=_("Larger is sooner.")
    )
    run_after = Moment(required=False, help_text=_("With its offset, such as 2030-01-31T09:00:00Z."))
    delay = Seconds(
        required=False,
        min_value=0,
        max_value=DELAY_MAX_S,
        help_text=_("Seconds from now until it may run, by the server's clock; instead of run_after."),
    )
    expires_after = Seconds(
        required=False,
        min_value=0.001,
        max_value=EXPIRES_MAX_S,
        help_text=_("Seconds after which a job that has not started is dropped."),
    )
    deadline = Moment(
        required=False,
        help_text=_("When the job should have ended, with its offset. Orders jobs where the pool's policy is “edf”."),
    )
    metadata = serializers.DictField(required=False, help_text=_("Kept beside the job, for whoever looks at it."))

    def validate_kwargs(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        for name in kwargs:
            # `self` is the task in `task.enqueue(...)`.
            if not name.isidentifier() or name == "self":
                raise serializers.ValidationError(_("%(name)s cannot name an argument.") % {"name": shown(name)})
        return kwargs

    def validate_task(self, name: str) -> DuctorTask:
        """The task itself. Only what a module of the project has declared is looked at, and only `api=True` is told."""
        load_tasks()
        task = registry.get(name)
        if task is None or not task.api:
            raise serializers.ValidationError(_("No task of this name can be started here."))
        return task

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        task: DuctorTask = attrs["task"]
        if "delay" in attrs and "run_after" in attrs:
            raise serializers.ValidationError({"delay": [_("A job has a delay or run_after, not both.")]})
        # First what JSON text can carry at all (NaN, depth, lone surrogates): errors from here name field and path.
        encode_arguments(attrs["args"], attrs["kwargs"])
        if why := misfit(task, attrs["args"], attrs["kwargs"]):
            raise serializers.ValidationError(
                {"kwargs": [_("The arguments do not fit the task: %(error)s.") % {"error": why[:200]}]}
            )
        return attrs


class EditArguments(Strict):
    """Other arguments for a dead letter."""

    args = serializers.ListField(required=False, help_text=_("All of them; as they are unless named."))
    kwargs = serializers.DictField(required=False, help_text=_("All of them; as they are unless named."))
    edits = WholeNumber(
        min_value=0, help_text=_("How often it has been edited, as you know it: another number changes nothing.")
    )
    retry = Flag(required=False, default=False, help_text=_("Send it back to work then, with fresh budgets."))
    dry_run = Flag(required=False, default=False, help_text=_("Only say what would change."))
    note = Text(required=False, max_length=NOTE_MAX, help_text=_("Why; kept with who did it."))

    validate_kwargs = JobRequest.validate_kwargs


class BulkJob(JobRequest):
    """A job of many. The header Idempotency-Key is for one job; here each may have its own."""

    idempotency_key = Text(max_length=IDEMPOTENCY_KEY_MAX, required=False)

    def validate_idempotency_key(self, key: str) -> str | None:
        return idempotency_key(key)


class BulkRequest(Strict):
    """Many jobs. Each is judged for itself, so that a wrong one does not fail the others."""

    jobs = serializers.ListField(child=BulkJob(), min_length=1, max_length=BULK_MAX)


class BulkList(Strict):
    """The list of a bulk request, its items unread."""

    jobs = serializers.ListField(min_length=1, max_length=BULK_MAX)


class Ids(Strict):
    """Which dead letters."""

    ids = Names(child=Name(ID_FORM, _("An id has A–Z, a–z, 0–9 and “. _ -”.")), min_length=1, max_length=BULK_MAX)


class Matching(OfPool, OfTenant, OfLane, OfTask):
    """All jobs of a pool that have this in common. What is not named is no condition."""

    as_of = Moment(
        required=False,
        help_text=_("Jobs that came later are left alone, with its offset. Now, unless named; the answer tells it."),
    )
    dry_run = Flag(required=False, default=False, help_text=_("Only count."))
    expected = WholeNumber(
        required=False,
        min_value=0,
        help_text=_("How many match, where you know it exactly: more than that change nothing."),
    )
    cursor = Name(
        PLACE_FORM,
        _("This is no cursor of ours: take “cursor” of the answer before."),
        required=False,
        help_text=_("To go on: “cursor” of the answer before, with the same conditions. It says “as_of”, too."),
    )


class CancelMatching(Matching):
    """Which jobs to cancel."""

    state = Word(
        "LiveState",
        [state for state in State if state.waits or state is State.ACTIVE],
        required=False,
        help_text=_("Only jobs in this state; unless named, all that wait or run."),
    )


class DeadMatching(Matching, OfDeath):
    """Which dead letters."""


class RetryMatching(DeadMatching):
    """Which dead letters to retry, and how fast."""

    rate = Seconds(
        required=False,
        min_value=0,
        max_value=1_000_000,
        help_text=_("So many a second; 0 = all at once. %(rate)g unless named.") % {"rate": RATE},
    )


class PauseTenant(OfPool, OfLane):
    """Which pool, and perhaps which lane, of the tenant."""


class Obliterate(Strict):
    """That the pool is meant."""

    name = Name(POOL_FORM, POOL_REMEDY, help_text=_("The pool's name once more."))
    force = Flag(
        required=False,
        default=False,
        help_text=_("Also while jobs run: their bodies go on, and what they say afterwards is refused."),
    )


class Query(Strict):
    """Parameters of a query; each at most once. Itself it knows none."""

    unknown = _("Unknown parameter; known are: %(known)s.")

    def __init__(self, *, given: QueryDict | None = None, **kwargs: Any) -> None:
        if given is not None:
            kwargs["data"] = {name: values[0] if len(values) == 1 else values for name, values in given.lists()}
        super().__init__(**kwargs)


class PageQuery(Query):
    """Which page of a list."""

    cursor = Name(CURSOR_FORM, CURSOR_REMEDY, required=False, help_text=_("From “next” of the page before."))
    page_size = Digits(
        required=False, default=PAGE_SIZE, min_value=1, help_text=_("At most %(most)d are given.") % {"most": PAGE_MAX}
    )

    def validate_page_size(self, size: int) -> int:
        return min(size, PAGE_MAX)


class PoolQuery(Query, OfPool):
    """Which pool."""


class TenantQuery(Query, OfTenant):
    """For whom."""


class JobsQuery(PageQuery, OfPool, OfTenant, OfTask):
    """Which jobs."""

    state = Word("State", State, required=False, default=State.PENDING.value, help_text=_("Which jobs."))


class DeadLettersQuery(PageQuery, OfPool, OfTenant, OfTask, OfDeath):
    """Which dead letters."""


class TenantsQuery(PageQuery, OfPool):
    """Which tenants."""

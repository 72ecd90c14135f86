"""The shape of every answer, for the OpenAPI document. `answers` fills them; a test compares the two."""

from __future__ import annotations

from typing import Any

from django.utils.translation import gettext_lazy as _
from rest_framework import serializers

from queueapp.api.fields import Word
from queueapp.states import Outcome, State


class Shape(serializers.Serializer[Any]):
    """What the shapes have in common: they describe, and nothing is read or written through them."""


class Fault(Shape):
    """Why a request was refused."""

    detail = serializers.CharField(help_text=_("For people, in the language of the request."))
    code = serializers.CharField(help_text=_("For programs; stays the same."))


class Conflict(Fault):
    """Why the state of a job, or what an Idempotency-Key stands for, does not allow what was asked."""

    state = Word("State", State, required=False, help_text=_("Where the job stands now."))
    outcome = Word("Outcome", Outcome, required=False, allow_null=True, help_text=_("How it ended."))


class Accepted(Shape):
    """A job that is there: by this request, or by an earlier one with the same key."""

    id = serializers.CharField()
    state = Word("State", State, allow_null=True, help_text=_("Where the job stands now."))
    url = serializers.URLField(help_text=_("Where to look at the job."))


class BulkItem(Shape):
    """What became of one job of many."""

    status = serializers.IntegerField(help_text=_("The status that this job would have been answered with alone."))
    job = Accepted(allow_null=True)
    error = serializers.DictField(
        allow_null=True, help_text=_("What this job would have been answered with alone; null when it was taken.")
    )


class BulkAnswer(Shape):
    """One item for every job of the request, in its order."""

    results = BulkItem(many=True)


class Acted(Shape):
    """What an action did."""

    id = serializers.CharField()
    state = Word("State", State, help_text=_("Where the job stands now."))
    outcome = Word("Outcome", Outcome, allow_null=True, help_text=_("How it ended."))
    url = serializers.URLField(help_text=_("Where to look at the job."))
    changed = serializers.BooleanField(help_text=_("False when it stood so already, as for a repeated request."))


class Counts(Shape):
    """What an action did to many."""

    retried = serializers.IntegerField()
    already = serializers.IntegerField(help_text=_("Not dead any more, or ended."))
    gone = serializers.IntegerField(help_text=_("Unknown, or of a tenant for whom this user may not speak."))
    unreached = serializers.IntegerField(help_text=_("Not tried, because the store went away: ask again for these."))


class Brief(Shape):
    """A job in a list."""

    id = serializers.CharField()
    url = serializers.URLField(help_text=_("Where to look at the job."))
    task = serializers.CharField()
    pool = serializers.CharField()
    tenant = serializers.CharField()
    lane = serializers.CharField()
    priority = serializers.IntegerField()
    state = Word("State", State)
    outcome = Word("Outcome", Outcome, allow_null=True, help_text=_("How it ended."))
    reason = serializers.CharField(allow_null=True, help_text=_("Why it is a dead letter."))
    group = serializers.CharField(allow_null=True, help_text=_("Dead letters that died of the same share it."))
    attempts = serializers.IntegerField(help_text=_("How often a worker took it."))
    max_attempts = serializers.IntegerField(allow_null=True, help_text=_("Null when it is not known any more."))
    crashes = serializers.IntegerField(help_text=_("How many workers were lost while they ran it."))
    error = serializers.CharField(allow_null=True, help_text=_("Class of the last error."))
    submitted = serializers.DateTimeField(allow_null=True)
    due = serializers.DateTimeField(allow_null=True, help_text=_("The moment that a scheduled job waits for."))
    started = serializers.DateTimeField(allow_null=True, help_text=_("When a worker first took it."))
    ended = serializers.DateTimeField(allow_null=True, help_text=_("When it ended or died."))


class Attempt(Shape):
    """One attempt that failed, or that was lost with its worker."""

    kind = serializers.CharField(help_text=_("“error”, or “lost”: its worker went away."))
    attempt = serializers.IntegerField()
    at = serializers.DateTimeField(allow_null=True)
    error = serializers.CharField(allow_null=True, help_text=_("Class of the error."))
    message = serializers.CharField(allow_null=True, help_text=_("Null unless the user may see contents."))
    traceback = serializers.CharField(allow_null=True, help_text=_("Null unless the user may see contents."))


class Arguments(Shape):
    """What a job was given, masked."""

    args = serializers.ListField()
    kwargs = serializers.DictField()


class Job(Brief):
    """All that is told of one job."""

    errors = Attempt(  # type: ignore[assignment]  # a field: DRF takes it out of the class, and its property stays
        many=True, help_text=_("Attempts that failed, the newest last.")
    )
    progress = serializers.JSONField(allow_null=True, help_text=_("What the task said of its progress, masked."))
    metadata = serializers.JSONField(allow_null=True, help_text=_("What was saved beside the job, masked."))
    result = serializers.JSONField(
        allow_null=True, help_text=_("What the task returned, masked. Null while the task is not known here.")
    )
    arguments = Arguments(
        allow_null=True, help_text=_("Null once the job has ended, and unless the user may see contents.")
    )


class JobResult(Shape):
    """What a completed job returned."""

    id = serializers.CharField()
    result = serializers.JSONField(allow_null=True, help_text=_("As JSON, masked."))


class Page(Shape):
    """The end of every list."""

    next = serializers.URLField(allow_null=True, help_text=_("The next page; null on the last one."))


class Jobs(Page):
    """A page of jobs."""

    results = Brief(many=True, help_text=_("May be shorter than page_size, even empty, while next is not null."))


class PoolName(Shape):
    """A pool in a list."""

    name = serializers.CharField()
    url = serializers.URLField(help_text=_("Where to look at the pool."))


class Pools(Page):
    """A page of pools, by name."""

    results = PoolName(many=True)


class Pool(Shape):
    """How a pool stands: for one tenant, or as a whole for who may speak for every tenant."""

    name = serializers.CharField()
    tenant = serializers.CharField(allow_null=True, help_text=_("Whose jobs are counted; null for everybody's."))
    paused = serializers.BooleanField(help_text=_("Jobs are accepted but none starts."))
    waiting = serializers.IntegerField(help_text=_("Pending and scheduled jobs."))
    dead = serializers.IntegerField(help_text=_("Dead letters."))
    active = serializers.IntegerField(allow_null=True, help_text=_("Running jobs; null when they are not counted."))
    scheduled = serializers.IntegerField(allow_null=True, help_text=_("Of the pool as a whole, else null."))
    ended = serializers.IntegerField(allow_null=True, help_text=_("Of the pool as a whole, else null."))
    workers = serializers.IntegerField(allow_null=True, help_text=_("Of the pool as a whole, else null."))
    policy = serializers.CharField(allow_null=True, help_text=_("Of the pool as a whole, else null."))


class TenantBrief(Shape):
    """A tenant in a list."""

    key = serializers.CharField()
    url = serializers.URLField(help_text=_("Where to look at the tenant."))
    pool = serializers.CharField(help_text=_("Where its jobs are counted."))
    waiting = serializers.IntegerField(help_text=_("Pending and scheduled jobs."))
    active = serializers.IntegerField(allow_null=True, help_text=_("Running jobs; null when they are not counted."))
    dead = serializers.IntegerField(help_text=_("Dead letters."))


class Tenants(Page):
    """A page of tenants."""

    results = TenantBrief(many=True)


class Limits(Shape):
    """What is configured for a tenant, or for one lane of it, in a pool."""

    lane = serializers.CharField(help_text=_("Empty for the tenant itself."))
    weight = serializers.FloatField(help_text=_("Share of service next to others."))
    max_in_flight = serializers.IntegerField(allow_null=True, help_text=_("Most jobs at once; null for no limit."))
    paused = serializers.BooleanField(help_text=_("Jobs are accepted but none starts."))


class Tenant(TenantBrief):
    """How a tenant stands in one pool, and what is configured for it there."""

    name = serializers.CharField(help_text=_("For people; may be empty."))
    limits = Limits(many=True, help_text=_("What is configured; none: the pool's defaults hold."))

"""The shapes of what is said of jobs: taken, acted on, listed, looked at, and why they wait."""

from __future__ import annotations

from django.utils.translation import gettext_lazy as _
from rest_framework import serializers

from queueapp.api.fields import Word
from queueapp.api.shapes import Page, Shape
from queueapp.inspection.explain import STATES as WAIT_STATES
from queueapp.inspection.reason import Kind
from queueapp.states import Outcome, State


class Named(Shape):
    """A job."""

    id = serializers.CharField()
    url = serializers.URLField(help_text=_("Where to look at the job."))


class Accepted(Named):
    """A job that is there: by this request, or one that stands for it."""

    state = Word("State", State, allow_null=True, help_text=_("Where the job stands now."))


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


class Placed(Named):
    """A job, and where it stands."""

    state = Word("State", State, help_text=_("Where the job stands now."))
    outcome = Word("Outcome", Outcome, allow_null=True, help_text=_("How it ended."))


class Acted(Placed):
    """What an action did."""

    changed = serializers.BooleanField(help_text=_("False when it stood so already, as for a repeated request."))
    word = serializers.CharField(help_text=_("What became of the request; “already” when it stood so before."))


class Edit(Shape):
    """One place of the arguments that changes, masked."""

    place = serializers.CharField(help_text=_("Such as “args[0]” or “kwargs.address.zip”."))
    before = serializers.JSONField(required=False, help_text=_("Not there where nothing stood."))
    after = serializers.JSONField(required=False, help_text=_("Not there where nothing stands."))


class Edited(Acted):
    """What became of other arguments for a dead letter."""

    edits = serializers.IntegerField(help_text=_("How often it has been edited by now."))
    changes = Edit(many=True, allow_null=True, help_text=_("Null unless the user may see contents."))
    begins_anew = serializers.BooleanField(
        help_text=_("What its last run saved as a checkpoint goes: it was of other arguments.")
    )


class Counts(Shape):
    """What an action did to many."""

    retried = serializers.IntegerField()
    skipped = serializers.IntegerField(help_text=_("Another job of the same singleton waits or runs."))
    already = serializers.IntegerField(help_text=_("Not dead any more, or ended."))
    gone = serializers.IntegerField(help_text=_("Unknown, or of a tenant for whom this user may not speak."))
    unreached = serializers.IntegerField(help_text=_("Not tried, because the store went away: ask again for these."))


class Brief(Placed):
    """A job in a list."""

    task = serializers.CharField()
    pool = serializers.CharField()
    tenant = serializers.CharField()
    lane = serializers.CharField()
    priority = serializers.IntegerField()
    cancelling = serializers.BooleanField(help_text=_("It runs and was told to stop: its outcome will be “cancelled”."))
    moved_to = serializers.CharField(allow_null=True, help_text=_("Its id in the pool to which it was moved."))
    reason = serializers.CharField(allow_null=True, help_text=_("Why it is a dead letter."))
    group = serializers.CharField(allow_null=True, help_text=_("Dead letters that died of the same share it."))
    charged = serializers.FloatField(
        allow_null=True, help_text=_("What its tenant was charged for the newest attempt, in the pool's cost unit.")
    )
    attempts = serializers.IntegerField(help_text=_("How often a worker took it."))
    max_attempts = serializers.IntegerField(allow_null=True, help_text=_("Null when it is not known any more."))
    crashes = serializers.IntegerField(help_text=_("How many workers were lost while they ran it."))
    error = serializers.CharField(allow_null=True, help_text=_("Class of the last error."))
    submitted = serializers.DateTimeField(allow_null=True)
    due = serializers.DateTimeField(allow_null=True, help_text=_("The moment that a scheduled job waits for."))
    deadline = serializers.DateTimeField(
        allow_null=True, help_text=_("When it should have ended; null for none, and once it has ended.")
    )
    started = serializers.DateTimeField(allow_null=True, help_text=_("When a worker first took it."))
    ended = serializers.DateTimeField(allow_null=True, help_text=_("When it ended or died."))


class Jobs(Page):
    """A page of jobs."""

    results = Brief(many=True, help_text=_("May be shorter than page_size, even empty, while next is not null."))


class Attempt(Shape):
    """One attempt that failed, or that was lost with its worker."""

    kind = serializers.CharField(help_text=_("“error”, or “lost”: its worker went away."))
    attempt = serializers.IntegerField()
    worker = serializers.CharField(allow_null=True, help_text=_("Null unless the user may see contents."))
    started = serializers.DateTimeField(allow_null=True, help_text=_("When its lease began."))
    at = serializers.DateTimeField(allow_null=True, help_text=_("When it ended."))
    error = serializers.CharField(allow_null=True, help_text=_("Class of the error."))
    message = serializers.CharField(allow_null=True, help_text=_("Null unless the user may see contents."))
    traceback = serializers.CharField(allow_null=True, help_text=_("Null unless the user may see contents."))


class Arguments(Shape):
    """What a job was given, masked."""

    args = serializers.ListField()
    kwargs = serializers.DictField()


class Waits(Shape):
    """Seconds of waiting, by what was waited for."""

    schedule = serializers.FloatField(help_text=_("Its own moment: run_after, delay, debounce, parking."))
    backoff = serializers.FloatField(help_text=_("After an attempt, until the next might begin."))
    limits = serializers.FloatField(help_text=_("A pause, ceiling or rate of its tenant, lane or concurrency keys."))
    line = serializers.FloatField(help_text=_("All the rest: others had their turn, or no worker was free."))


class Job(Brief):
    """All that is told of one job."""

    waits_s = Waits(
        allow_null=True,
        help_text=_("Until its newest attempt began, over all attempts; null while no worker has taken it."),
    )

    errors = Attempt(  # type: ignore[assignment]  # a field: DRF takes it out of the class, and its property stays
        many=True, help_text=_("Attempts that failed, the newest last.")
    )
    progress = serializers.JSONField(allow_null=True, help_text=_("What the task said of its progress, masked."))
    metadata = serializers.JSONField(allow_null=True, help_text=_("What was saved beside the job, masked."))
    result = serializers.JSONField(
        allow_null=True, help_text=_("What the task returned, masked. Null while the task is not known here.")
    )
    edits = serializers.IntegerField(help_text=_("How often its arguments were edited while it was dead."))
    edited = serializers.DateTimeField(allow_null=True, help_text=_("When last."))
    arguments = Arguments(
        allow_null=True, help_text=_("Null once the job has ended, and unless the user may see contents.")
    )


class JobResult(Shape):
    """What a completed job returned."""

    id = serializers.CharField()
    result = serializers.JSONField(allow_null=True, help_text=_("As JSON, masked."))


class Reason(Shape):
    """One part of what a job waits for."""

    kind = Word("ReasonKind", Kind, help_text=_("For programs; stays the same."))
    text = serializers.CharField(help_text=_("For people: a clause that is true by itself."))
    blocks = serializers.BooleanField(help_text=_("It alone keeps the job from starting."))
    used = serializers.IntegerField(allow_null=True, help_text=_("Of a ceiling: how many run."))
    limit = serializers.IntegerField(allow_null=True, help_text=_("Of a ceiling: how many may run."))
    held_by = serializers.ListField(
        child=serializers.CharField(),
        help_text=_("Some of the jobs that hold its place, of tenants one may speak for."),
    )
    since = serializers.DateTimeField(allow_null=True)
    until = serializers.DateTimeField(allow_null=True)


class Estimate(Shape):
    """When a job starts or ends, as far as that can be said."""

    of = Word("EstimateOf", ("start", "end"), help_text=_("What it is about."))
    earliest = serializers.DateTimeField(allow_null=True, help_text=_("Null: nobody can say."))
    latest = serializers.DateTimeField(allow_null=True, help_text=_("Null: nobody can say how late at most."))
    basis = serializers.CharField(help_text=_("What it rests on, or why there is none."))


class Why(Named):
    """What a job waits for, at one moment."""

    state = Word(
        "WaitState",
        WAIT_STATES,
        help_text=_("Where it stands; “deferred”: the outbox keeps it until the store takes it."),
    )
    outcome = Word("Outcome", Outcome, allow_null=True, help_text=_("How it ended."))
    pool = serializers.CharField()
    tenant = serializers.CharField()
    task = serializers.CharField()
    sentence = serializers.CharField(help_text=_("The answer, for people."))
    reasons = Reason(many=True, help_text=_("Its parts, the most important first."))
    until = serializers.DateTimeField(allow_null=True, help_text=_("Until when the first reason holds."))
    estimate = Estimate(allow_null=True, help_text=_("Null for what runs no more."))
    as_of = serializers.DateTimeField(help_text=_("The moment of all this, on the store's clock."))

"""The shape of every answer, for the OpenAPI document. `answers` fills them; a test compares the two."""

from __future__ import annotations

from typing import Any

from django.utils.translation import gettext_lazy as _
from rest_framework import serializers

from queueapp.api.fields import Word
from queueapp.firings import CATCH_UP, OVERLAP
from queueapp.inspection.explain import STATES as WAIT_STATES
from queueapp.inspection.reason import Kind
from queueapp.inspection.shares import Standing
from queueapp.metrics import FIRING_OUTCOMES
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
    """A job that is there: by this request, or one that stands for it."""

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
    word = serializers.CharField(help_text=_("What became of the request; “already” when it stood so before."))


class Counts(Shape):
    """What an action did to many."""

    retried = serializers.IntegerField()
    skipped = serializers.IntegerField(help_text=_("Another job of the same singleton waits or runs."))
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


class Why(Shape):
    """What a job waits for, at one moment."""

    id = serializers.CharField()
    url = serializers.URLField(help_text=_("Where to look at the job."))
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


class OwnShare(Shape):
    """What a tenant had of a pool in the last minutes, against what it was entitled to. No other tenant is told of."""

    window_s = serializers.FloatField(help_text=_("Seconds that were looked at."))
    unit = serializers.CharField(help_text=_("Of cost: “ms”, or the pool's own word."))
    state = Word("Standing", Standing, help_text=_("How the tenant stands, in one word."))
    jobs = serializers.IntegerField(help_text=_("Leases that were given."))
    units = serializers.FloatField(help_text=_("Service, in units of cost."))
    share = serializers.FloatField(help_text=_("Of all service, 0 to 1."))
    entitled_share = serializers.FloatField(
        help_text=_("By weight, among the tenants that had work: what one leaves goes to the others.")
    )
    ratio = serializers.FloatField(allow_null=True, help_text=_("Had over entitled; null when entitled to nothing."))
    wait_s = serializers.FloatField(
        allow_null=True, help_text=_("How long the first job in line has waited; null when none is.")
    )
    waits_s = Waits(help_text=_("What the jobs that started in the window had waited for, all together."))


class Fairness(Shape):
    """How a pool's service was shared out in the last minutes."""

    window_s = serializers.FloatField(help_text=_("Seconds that were looked at."))
    unit = serializers.CharField(help_text=_("Of cost: “ms”, or the pool's own word."))
    units = serializers.FloatField(help_text=_("Service of all tenants, in units of cost."))
    jobs = serializers.IntegerField(help_text=_("Leases that were given."))
    states = serializers.DictField(
        child=serializers.IntegerField(), help_text=_("How many tenants stand so; docs/fairness.md defines the words.")
    )
    jain_service = serializers.FloatField(help_text=_("Jain's index of service per weight."))
    jain_count = serializers.FloatField(help_text=_("Jain's index of the number of jobs."))
    jain_entitled = serializers.FloatField(help_text=_("Jain's index of service over what each was entitled to."))
    whole = serializers.BooleanField(help_text=_("False in a large pool, of which a share was looked at."))


class Reranking(Shape):
    """How far the jobs that waited when a pool's policy changed have moved over to the new order."""

    policy = serializers.CharField(help_text=_("The policy before."))
    moved = serializers.IntegerField(help_text=_("Jobs that have left its order: ranked anew, or ended meanwhile."))
    total = serializers.IntegerField(help_text=_("Jobs that waited when the policy changed."))


class Pool(Shape):
    """How a pool stands: for one tenant, or as a whole for who may speak for every tenant."""

    name = serializers.CharField()
    tenant = serializers.CharField(allow_null=True, help_text=_("Whose jobs are counted; null for everybody's."))
    paused = serializers.BooleanField(help_text=_("Jobs are accepted but none starts."))
    waiting = serializers.IntegerField(help_text=_("Jobs that have not begun: pending, scheduled, parked."))
    parked = serializers.IntegerField(help_text=_("Of those, jobs above a rate, until their moment comes."))
    dead = serializers.IntegerField(help_text=_("Dead letters."))
    active = serializers.IntegerField(allow_null=True, help_text=_("Running jobs; null when they are not counted."))
    scheduled = serializers.IntegerField(allow_null=True, help_text=_("Of the pool as a whole, else null."))
    ended = serializers.IntegerField(allow_null=True, help_text=_("Of the pool as a whole, else null."))
    workers = serializers.IntegerField(allow_null=True, help_text=_("Of the pool as a whole, else null."))
    policy = serializers.CharField(allow_null=True, help_text=_("Of the pool as a whole, else null."))
    fairness = Fairness(allow_null=True, help_text=_("Of the pool as a whole, else null."))
    own_share = OwnShare(allow_null=True, help_text=_("Of the one tenant, else null."))
    edf_by = serializers.CharField(
        allow_null=True, help_text=_("What the policy “edf” goes by: “deadline” or “latest_start”. Null for others.")
    )
    aging_step_ms = serializers.IntegerField(
        allow_null=True, help_text=_("Waiting that is worth a step of priority under “aging”. Null for others.")
    )
    dispatch = serializers.CharField(
        allow_null=True,
        help_text=_(
            "Who chooses the next job: the store (“direct”) or a leader (“scheduled”). Of the pool as a whole."
        ),
    )
    window = serializers.IntegerField(
        allow_null=True, help_text=_("Most jobs that are chosen and not yet done; null where dispatch is direct.")
    )
    ingress = serializers.IntegerField(
        allow_null=True, help_text=_("Waiting jobs that no leader has ranked yet. Of the pool as a whole, else null.")
    )
    ready = serializers.IntegerField(
        allow_null=True, help_text=_("Waiting jobs that a leader has chosen. Of the pool as a whole, else null.")
    )
    reranking = Reranking(
        allow_null=True,
        help_text=_("A change of policy that is on its way; null when none is. Of the pool as a whole."),
    )


class TenantBrief(Shape):
    """A tenant in a list."""

    key = serializers.CharField()
    url = serializers.URLField(help_text=_("Where to look at the tenant."))
    pool = serializers.CharField(help_text=_("Where its jobs are counted."))
    waiting = serializers.IntegerField(help_text=_("Jobs that have not begun: pending, scheduled, parked."))
    parked = serializers.IntegerField(help_text=_("Of those, jobs above a rate, until their moment comes."))
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
    min_share = serializers.IntegerField(help_text=_("Jobs that run at once before others get a turn; 0 for none."))
    paused = serializers.BooleanField(help_text=_("Jobs are accepted but none starts."))
    rate = serializers.IntegerField(
        allow_null=True, help_text=_("Jobs that may come in during each period; null for no limit.")
    )
    period_seconds = serializers.FloatField(help_text=_("What the rate counts in."))
    burst = serializers.IntegerField(help_text=_("How many may come at once after a rest."))
    backlog_limit = serializers.IntegerField(
        allow_null=True, help_text=_("Most jobs of the tenant that wait; null for no limit.")
    )
    dispatch_rate = serializers.IntegerField(
        allow_null=True, help_text=_("Jobs that may start during each dispatch period; null for no limit.")
    )
    dispatch_period_seconds = serializers.FloatField(help_text=_("What the dispatch rate counts in."))
    dispatch_burst = serializers.IntegerField(help_text=_("How many may start at once after a rest."))


class Tenant(TenantBrief):
    """How a tenant stands in one pool, and what is configured for it there."""

    name = serializers.CharField(help_text=_("For people; may be empty."))
    own_share = OwnShare(help_text=_("What it had of the pool in the last minutes."))
    limits = Limits(many=True, help_text=_("What is configured; none: the pool's defaults hold."))


class ScheduleBrief(Shape):
    """A schedule in a list."""

    id = serializers.CharField()
    url = serializers.URLField(help_text=_("Where to look at the schedule."))
    name = serializers.CharField()
    task = serializers.CharField(help_text=_("Dotted name of the task that it enqueues."))
    tenant = serializers.CharField(
        allow_null=True, help_text=_("Whose its jobs are; null when its task, which would say so, is not known.")
    )
    enabled = serializers.BooleanField(help_text=_("Whether it fires."))
    cron = serializers.CharField(allow_null=True, help_text=_("Its five fields; null for an interval."))
    every_seconds = serializers.IntegerField(allow_null=True, help_text=_("Its interval; null for a cron."))
    zone = serializers.CharField(allow_null=True, help_text=_("The time zone of its cron."))
    next_at = serializers.DateTimeField(allow_null=True, help_text=_("When it fires next; null when it does not."))


class Schedules(Page):
    """A page of schedules."""

    results = ScheduleBrief(many=True)


class Schedule(ScheduleBrief):
    """When a schedule fires, and what became of the last firing."""

    pool = serializers.CharField(allow_null=True, help_text=_("Null for the task's own."))
    catch_up = Word("CatchUp", CATCH_UP, help_text=_("What becomes of firings that were missed."))
    overlap = Word("Overlap", OVERLAP, help_text=_("What becomes of one while the last job is not over."))
    start = serializers.DateTimeField(allow_null=True, help_text=_("No firing before it."))
    end = serializers.DateTimeField(allow_null=True, help_text=_("No firing after it."))
    last_at = serializers.DateTimeField(allow_null=True, help_text=_("The moment that the last firing was for."))
    fired_at = serializers.DateTimeField(allow_null=True, help_text=_("When the last firing was made."))
    last_job = serializers.CharField(allow_null=True, help_text=_("Id of the last job."))
    outcome = Word("FiringOutcome", FIRING_OUTCOMES, allow_null=True, help_text=_("What became of the last firing."))
    note = serializers.CharField(
        allow_null=True, help_text=_("More about it, for people with the permission view_payload; null for others.")
    )
    firings = serializers.ListField(
        child=serializers.DateTimeField(), help_text=_("The next five firings; none while it is off.")
    )

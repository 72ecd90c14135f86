"""The shapes of what is said of pools and of the tenants in them."""

from __future__ import annotations

from django.utils.translation import gettext_lazy as _
from rest_framework import serializers

from queueapp.api.fields import Word
from queueapp.api.job_shapes import Waits
from queueapp.api.shapes import Page, Shape
from queueapp.inspection.shares import Standing


class PoolName(Shape):
    """A pool in a list."""

    name = serializers.CharField()
    url = serializers.URLField(help_text=_("Where to look at the pool."))


class Pools(Page):
    """A page of pools, by name."""

    results = PoolName(many=True)


class Served(Shape):
    """What was looked at, and how many jobs of it were given to workers."""

    window_s = serializers.FloatField(help_text=_("Seconds that were looked at."))
    unit = serializers.CharField(help_text=_("Of cost: “ms”, or the pool's own word."))
    jobs = serializers.IntegerField(help_text=_("Leases that were given."))


class OwnShare(Served):
    """What a tenant had of a pool in the last minutes, against what it was entitled to. No other tenant is told of."""

    state = Word("Standing", Standing, help_text=_("How the tenant stands, in one word."))
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


class Fairness(Served):
    """How a pool's service was shared out in the last minutes."""

    units = serializers.FloatField(help_text=_("Service of all tenants, in units of cost."))
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


class Counts(Shape):
    """How many jobs there are."""

    waiting = serializers.IntegerField(
        help_text=_("Jobs that wait: pending, scheduled, parked or, where a leader dispatches, in ingress and ready.")
    )
    parked = serializers.IntegerField(help_text=_("Of those, jobs above a rate, until their moment comes."))
    active = serializers.IntegerField(allow_null=True, help_text=_("Running jobs; null when they are not counted."))
    dead = serializers.IntegerField(help_text=_("Dead letters."))


class Pool(Counts):
    """How a pool stands: for one tenant, or as a whole for who may speak for every tenant."""

    name = serializers.CharField()
    tenant = serializers.CharField(allow_null=True, help_text=_("Whose jobs are counted; null for everybody's."))
    paused = serializers.BooleanField(help_text=_("Jobs are accepted but none starts."))
    scheduled = serializers.IntegerField(allow_null=True, help_text=_("Of the pool as a whole, else null."))
    ended = serializers.IntegerField(allow_null=True, help_text=_("Of the pool as a whole, else null."))
    parents = serializers.IntegerField(
        allow_null=True,
        help_text=_("Jobs that wait for their children; none of those that wait. Of the pool as a whole, else null."),
    )
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


class TenantBrief(Counts):
    """A tenant in a list."""

    key = serializers.CharField()
    url = serializers.URLField(help_text=_("Where to look at the tenant."))
    pool = serializers.CharField(help_text=_("Where its jobs are counted."))


class Tenants(Page):
    """A page of tenants."""

    results = TenantBrief(many=True)


class Limits(Shape):
    """What is configured for a tenant, or for one lane of it, in a pool."""

    lane = serializers.CharField(help_text=_("Empty for the tenant itself."))
    weight = serializers.FloatField(
        allow_null=True, help_text=_("Share of service next to others; null: the pool's default, of a lane 1.")
    )
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

"""What is answered to operators: how many jobs match and what became of them, what is paused, drained or emptied."""

from __future__ import annotations

from django.utils.translation import gettext_lazy as _
from rest_framework import serializers

from queueapp.api.shapes import Shape


class Matched(Shape):
    """How many jobs match, and what became of them."""

    pool = serializers.CharField()
    as_of = serializers.DateTimeField(help_text=_("Jobs that came later are left alone: name it in what follows."))
    matching = serializers.IntegerField(help_text=_("How many match; after an action, how many of them were met."))
    exact = serializers.BooleanField(help_text=_("False: at least so many."))
    done = serializers.IntegerField(help_text=_("How many are now as was wanted, by this request."))
    stopping = serializers.IntegerField(help_text=_("Of those, how many run and were told to stop."))
    refused = serializers.IntegerField(help_text=_("Another job of the same singleton waits or runs."))
    changed = serializers.IntegerField(help_text=_("How many were in another state by then, or gone."))
    more = serializers.BooleanField(
        help_text=_("One request takes no more than these, or looks no further: ask again for the others.")
    )
    cursor = serializers.CharField(
        allow_null=True,
        help_text=_("To ask again with: what follows goes on here, as of the same moment, at the same rate."),
    )
    fault = serializers.BooleanField(help_text=_("The store went away in the middle: ask again for the others."))


class Paused(Shape):
    """What is paused now, or goes on."""

    pool = serializers.CharField()
    tenant = serializers.CharField(allow_null=True, help_text=_("Null for the whole pool."))
    lane = serializers.CharField(allow_null=True, help_text=_("Null for all of the tenant."))
    paused = serializers.BooleanField()
    changed = serializers.BooleanField(help_text=_("False: it was so already."))
    in_force = serializers.BooleanField(help_text=_("False: it is saved, and a scheduler brings it into force."))


class Draining(Shape):
    """A pool that is paused, and what it still has."""

    pool = serializers.CharField()
    paused = serializers.BooleanField()
    running = serializers.IntegerField(help_text=_("Ask again until this is 0."))
    waiting = serializers.IntegerField(help_text=_("They stay, and go on when the pool does."))


class Obliterated(Shape):
    """How far the emptying of a pool is."""

    pool = serializers.CharField()
    jobs = serializers.IntegerField(help_text=_("How many this request removed."))
    done = serializers.BooleanField(help_text=_("False: ask again; until then nobody can use the pool."))

"""Pause, resume, drain, obliterate in the admin: a page that says what it means, then, confirmed, act and record.

One address for each pool, which takes POST alone. The work is that of the terminal and of REST: `sync.pause`,
`inspection.draining`, `inspection.obliteration`. A request does not wait until a pool is drained: it pauses and says
what still runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.contrib import admin, messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.functional import Promise
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _

from queueapp import sync
from queueapp.admin.choosing import OF_FORMS, posted_word, refuse_unknown, word
from queueapp.admin.pages import choose_pool, draw
from queueapp.admin.records import record, username
from queueapp.errors import DuctorError, InvalidOption
from queueapp.inspection.draining import left, pause_at_once
from queueapp.inspection.obliteration import MOST_OF_REQUEST_S, obliterate
from queueapp.models import Operations

KNOWN = OF_FORMS | {"verb", "tenant", "lane", "force"}
"""The fields of its forms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """What an operator does, and what it means."""

    title: Promise
    meaning: Promise
    of_tenants: bool = False
    """Also for one tenant of the pool, or one lane of it."""
    typed: bool = False
    """The pool's name must be typed."""


OPERATIONS = {
    "pause": Operation(
        title=_("Pause"),
        meaning=_("Nothing more of it starts. Jobs are accepted, what runs goes on, and what waits keeps its place."),
        of_tenants=True,
    ),
    "resume": Operation(
        title=_("Resume"), meaning=_("It goes on where it stopped, in the same order."), of_tenants=True
    ),
    "drain": Operation(
        title=_("Drain"),
        meaning=_("The pool is paused, and you are told what still runs. Look again until nothing does, then resume."),
    ),
    "obliterate": Operation(
        title=_("Obliterate"),
        meaning=_(
            "Every job of the pool goes for good, in whatever state, with dead letters and results. What is configured "
            "stays. Meanwhile nobody can use the pool."
        ),
        typed=True,
    ),
}


def operate(owner: admin.ModelAdmin[Any], request: HttpRequest, pool: str, *, back: str) -> HttpResponse:
    """The view: the page without `confirmed`, else the act."""
    choice = choose_pool(request)
    if pool not in choice.names:
        raise Http404(gettext("There is no pool of this name."))
    verb = word(request.POST, "verb")
    operation = OPERATIONS.get(verb)
    if choice.fault and verb not in ("pause", "resume"):  # those are saved, and act when the store is back
        messages.error(request, choice.fault)
        return HttpResponseRedirect(back)
    try:
        refuse_unknown(request.POST, KNOWN)
        tenant, lane = (posted_word(request.POST, name) for name in ("tenant", "lane"))
    except InvalidOption as error:
        messages.error(request, str(error))
        return HttpResponseRedirect(back)
    if operation is None:
        messages.warning(request, gettext("Nothing was chosen, so that nothing was changed."))
        return HttpResponseRedirect(back)
    if (tenant or lane) and not operation.of_tenants:
        messages.error(request, gettext("Only a whole pool can be drained or obliterated. Nothing was changed."))
        return HttpResponseRedirect(back)
    typed = word(request.POST, "typed")
    if "confirmed" in request.POST and (not operation.typed or typed == pool):
        try:
            _act(request, verb, pool, tenant, lane)
        except DuctorError as error:
            messages.error(request, str(error))
        return HttpResponseRedirect(back)
    context = {
        "verb": verb,
        "operation": operation,
        "pool": pool,
        "tenant": tenant,
        "lane": lane,
        "mistyped": "confirmed" in request.POST,
        "force": "force" in request.POST,
        "back": back,
    }
    title = gettext("%(operation)s %(what)s") % {"operation": operation.title, "what": _about(pool, tenant, lane)}
    return draw(owner, request, "operate.html", title, context)


def _act(request: HttpRequest, verb: str, pool: str, tenant: str, lane: str) -> None:
    if verb in ("pause", "resume"):
        found = (sync.pause if verb == "pause" else sync.resume)(pool, tenant=tenant, lane=lane, by=username(request))
        said = gettext("paused") if found.paused else gettext("at work")
        if not found.in_force:
            said += gettext(" (saved; a scheduler brings it into force)")
    elif verb == "drain":
        pause_at_once(pool, by=username(request))
        running = left(pool).running
        said = ngettext("paused, %(count)d job still runs", "paused, %(count)d jobs still run", running) % {
            "count": running
        }
    else:
        force = "force" in request.POST
        done = obliterate(pool, force=force, most_s=MOST_OF_REQUEST_S, by=username(request))
        said = ngettext("%(count)d job removed", "%(count)d jobs removed", done.jobs) % {"count": done.jobs}
        if not done.done:
            said += gettext(", others are left: go on with it")
    about = _about(pool, tenant, lane)
    messages.success(request, f"{about}: {said}.")
    record(request, Operations, about, f"{verb}: {said}")


def _about(pool: str, tenant: str, lane: str) -> str:
    return " ".join(part for part in (pool, tenant, lane) if part)

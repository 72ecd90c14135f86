"""Actions on jobs: first a page that says what will happen, then, confirmed, the act, its record and its counts.

Every action is one address that takes POST alone. Without `confirmed` it changes nothing and shows the page; all that
match a filter must be confirmed by typing what is about to happen. What the store refuses for one job is counted and
costs the others nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from django.contrib import admin, messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.functional import Promise
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _

from queueapp.admin.choosing import MOST, Chosen, number, read_chosen
from queueapp.admin.pages import acting_pool, draw
from queueapp.admin.records import record, username
from queueapp.admin.showing import moment_ms
from queueapp.errors import CountChanged, DuctorError
from queueapp.inspection import bulk
from queueapp.inspection.actions import Done
from queueapp.inspection.selection import NOT_ENDED, Selection
from queueapp.models import DeadLetters, Jobs
from queueapp.permissions import DISCARD_JOB, OPERATE_JOB
from queueapp.states import State

SHOWN = 20
NOTE_MOST = 2_000
LEFT_OFF = "ductor_left_off"
"""In the session: where requests stopped that did not come to their end."""
LEFT_OFF_MOST = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """An action, what it needs and what it means."""

    name: str
    needs: str
    title: Promise
    button: Promise
    meaning: Promise
    act: Callable[[], bulk.Act]
    """Looked up when it is called."""
    states: tuple[State, ...] = (State.DEAD,)
    """Of which all that match may be meant."""
    dangerous: bool = False


RETRY = Verb(
    name="retry",
    needs=OPERATE_JOB,
    title=_("Retry dead letters"),
    button=_("Retry"),
    meaning=_("They go back to work with fresh budgets, in their tenant's line behind its other jobs."),
    act=lambda: bulk.retry_many,
)
DISCARDING = Verb(
    name="discard",
    needs=DISCARD_JOB,
    title=_("Discard dead letters"),
    button=_("Discard"),
    meaning=_("They end for good. Their arguments are deleted; nothing brings them back."),
    act=lambda: bulk.discard_many,
    dangerous=True,
)
CANCEL = Verb(
    name="cancel",
    needs=OPERATE_JOB,
    title=_("Cancel jobs"),
    button=_("Cancel jobs"),
    meaning=_("Waiting ones end without having run. One that runs is told to stop; it ends when its body is through."),
    act=lambda: bulk.cancel_many,
    states=NOT_ENDED,
    dangerous=True,
)


def confirm_or_act(owner: admin.ModelAdmin[Any], request: HttpRequest, verb: Verb, *, back: str) -> HttpResponse:
    """The view behind every action. `back` is where it ends; the form's `next` comes first."""
    back = _next(request) or back
    try:
        pool = acting_pool(request)
        chosen = read_chosen(request, pool, verb.states)
    except DuctorError as error:
        messages.error(request, str(error))
        return HttpResponseRedirect(back)
    if chosen.none:
        messages.warning(request, gettext("No job was chosen, so that nothing was changed."))
        return HttpResponseRedirect(back)
    shown = number(request.POST, "shown", most=2**53)
    least = request.POST.get("least") == "yes"
    phrase, typed = f"{verb.name} {shown}", request.POST.get("typed", "").strip()
    mistyped = "confirmed" in request.POST
    try:
        if "confirmed" in request.POST and (not chosen.everything or ((shown or least) and typed == phrase)):
            try:
                return _act(request, verb, chosen, back, None if least else shown)
            except CountChanged as error:  # asked anew, with the number of now
                messages.warning(request, str(error))
                mistyped = False
        chosen = chosen.fixed()
        total, exact = chosen.count()
    except DuctorError as error:
        messages.error(request, str(error))
        return HttpResponseRedirect(back)
    if total == 0 and exact:
        messages.warning(request, gettext("No job was chosen, so that nothing was changed."))
        return HttpResponseRedirect(back)
    return draw(
        owner,
        request,
        "confirm.html",
        verb.title,
        {
            "verb": verb,
            "selection": chosen,
            "parameters": _parameters(chosen, verb),
            "conditions": _conditions(chosen.selection, verb) if chosen.selection is not None else (),
            "total": total,
            "exact": exact,
            "most": MOST,
            "phrase": f"{verb.name} {total}",
            "mistyped": mistyped,
            "examples": chosen.ids[:SHOWN],
            "others": max(0, len(chosen.ids) - SHOWN),
            "note": request.POST.get("note", "")[:NOTE_MOST],
            "note_most": NOTE_MOST,
            "back": back,
        },
    )


def _act(request: HttpRequest, verb: Verb, chosen: Chosen, back: str, shown: int | None) -> HttpResponse:
    """`shown`: so many were shown; None: at least so many, more than one request looks through."""
    note = request.POST.get("note", "").strip()[:NOTE_MOST]
    how = bulk.How(by=username(request), note=note)
    if chosen.everything:
        place, until_ms = _left_off(request, verb, chosen)
        how |= bulk.How(expected=shown, most=MOST, place=place if shown is None else "")
        act = partial(bulk.retry_many, redrive=bulk.Redrive(waits=False, from_ms=until_ms)) if verb is RETRY else None
        done = (act or verb.act())(chosen.asked, **how)
        _leave_off(request, verb, chosen, done)
    else:
        done = verb.act()(chosen.asked, **how)
    (messages.error if done.fault else messages.success)(request, done.summary())
    if chosen.surplus:
        messages.warning(
            request,
            ngettext(
                "%(count)d more job was chosen than one request takes; it is unchanged.",
                "%(count)d more jobs were chosen than one request takes; they are unchanged.",
                chosen.surplus,
            )
            % {"count": chosen.surplus},
        )
    if done.more and done.counts:
        messages.warning(
            request,
            gettext("One request takes the oldest %(most)d. What is left of the matching ones is still here: go on.")
            % {"most": MOST},
        )
    elif done.more:
        messages.warning(
            request,
            gettext(
                "None of those that one request looks through matches; others may. Go on, narrow the filter, or use "
                "the terminal, which looks through all of them."
            ),
        )
    what = f"{verb.name}: {done.summary()}"
    if chosen.everything:
        asked = {name: value for name, value in _parameters(chosen, verb).items() if name not in ("pool", "submission")}
        what += f" ({', '.join(f'{name}={value}' for name, value in asked.items()) or 'no filter'})"
    if note:
        what += f" {note}"
    if len(chosen.ids) == 1 and not chosen.everything:
        record(request, Jobs, chosen.ids[0], what, object_id=chosen.ids[0])
    else:
        handled = sum(done.counts.values())
        about = ngettext("%(count)d job of %(pool)s", "%(count)d jobs of %(pool)s", handled)
        model = DeadLetters if verb.states == (State.DEAD,) else Jobs
        record(request, model, about % {"count": handled, "pool": chosen.pool}, what)
    return HttpResponseRedirect(back)


def _left_off(request: HttpRequest, verb: Verb, chosen: Chosen) -> tuple[str, int]:
    """Where the request before stopped that did the same to what has the same in common; and when the next dead letter
    is due that any request sends back to work in this pool.
    """
    places, until_ms = request.session.get(LEFT_OFF, ({}, {}))
    return places.get(_asked(verb, chosen), ""), until_ms.get(chosen.pool, 0)


def _leave_off(request: HttpRequest, verb: Verb, chosen: Chosen, done: Done) -> None:
    """Keeps it for the next one."""
    places, until_ms = request.session.get(LEFT_OFF, ({}, {}))
    places.pop(_asked(verb, chosen), None)
    if done.place:
        places[_asked(verb, chosen)] = done.place
    if done.until_ms:
        until_ms[chosen.pool] = done.until_ms
    if places or until_ms:
        request.session[LEFT_OFF] = (dict(list(places.items())[-LEFT_OFF_MOST:]), until_ms)


def _asked(verb: Verb, chosen: Chosen) -> str:
    of_then = ("before", "submission")
    fields = (f"{name}={value}" for name, value in _parameters(chosen, verb).items() if name not in of_then)
    return " ".join([verb.name, *fields])


def _parameters(chosen: Chosen, verb: Verb) -> dict[str, str]:
    """What was chosen as fields that `read_chosen` reads, but for the ids; empty ones are left out."""
    if (selection := chosen.selection) is None:
        return {"pool": chosen.pool}
    fields = {
        "pool": selection.pool,
        "state": selection.states[0].value if selection.states != verb.states else "",
        "tenant": selection.tenant,
        "lane": selection.lane,
        "task": ", ".join(selection.tasks),
        "reason": selection.reason,
        "group": selection.group,
        "before": str(selection.as_of_ms or ""),
        "submission": str(selection.submission or ""),
    }
    return {name: value for name, value in fields.items() if value}


def _conditions(selection: Selection, verb: Verb) -> list[tuple[str, str]]:
    """The selection in words."""
    dead = verb.states == (State.DEAD,)
    named = (
        (gettext("Pool"), selection.pool),
        (gettext("State"), "" if dead else ", ".join(state.value for state in selection.states)),
        (gettext("Tenant"), selection.tenant),
        (gettext("Lane"), selection.lane),
        (gettext("Task"), ", ".join(selection.tasks)),
        (gettext("Died of"), selection.reason),
        (gettext("Group"), selection.group),
        (gettext("Died before") if dead else gettext("Submitted by"), moment_ms(selection.as_of_ms)),
    )
    return [(name, value) for name, value in named if value]


def _next(request: HttpRequest) -> str:
    wanted = request.POST.get("next", "")
    ours = url_has_allowed_host_and_scheme(
        wanted, allowed_hosts={request.get_host()}, require_https=request.is_secure()
    )
    return wanted if ours else ""


__all__ = ["CANCEL", "DISCARDING", "RETRY", "Verb", "confirm_or_act"]

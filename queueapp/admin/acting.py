"""Actions on jobs: first a page that says what will happen, then, confirmed, the act, its record and its counts.

Every action is one address that takes POST alone. Without `confirmed` it changes nothing and shows the page; all that
match a filter must be confirmed by typing what is about to happen. What the store refuses for one job is counted and
costs the others nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from django.contrib import admin, messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.functional import Promise
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _

from queueapp.admin.choosing import MOST, Selection, filter_parameters, read_selection
from queueapp.admin.pages import DISCARD, OPERATE, choose_pool, draw
from queueapp.admin.records import record, username
from queueapp.admin.showing import moment_ms
from queueapp.errors import DuctorError
from queueapp.inspection import actions
from queueapp.models import DeadLetters, Jobs

SHOWN = 20
NOTE_MOST = 2_000


class Act(Protocol):
    """An action of `inspection.actions`."""

    def __call__(self, ids: Any, *, by: str = "", note: str = "") -> actions.Done: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """An action, what it needs and what it means."""

    name: str
    needs: str
    title: Promise
    button: Promise
    meaning: Promise
    act: Callable[[], Act]
    """Looked up when it is called."""
    dangerous: bool = False


RETRY = Verb(
    name="retry",
    needs=OPERATE,
    title=_("Retry dead letters"),
    button=_("Retry"),
    meaning=_("They go back to work with fresh budgets, in their tenant's line behind its other jobs."),
    act=lambda: actions.retry,
)
DISCARDING = Verb(
    name="discard",
    needs=DISCARD,
    title=_("Discard dead letters"),
    button=_("Discard"),
    meaning=_("They end for good. Their arguments are deleted; nothing brings them back."),
    act=lambda: actions.discard,
    dangerous=True,
)
CANCEL = Verb(
    name="cancel",
    needs=OPERATE,
    title=_("Cancel waiting jobs"),
    button=_("Cancel jobs"),
    meaning=_("They end without having run. A job that runs by now is left alone."),
    act=lambda: actions.cancel,
    dangerous=True,
)


def confirm_or_act(
    owner: admin.ModelAdmin[Any], request: HttpRequest, verb: Verb, *, back: str, everything: bool
) -> HttpResponse:
    """The view behind every action. `back` is where it ends; the form's `next` comes first. `everything`: all that
    match a filter may be meant."""
    choice = choose_pool(request)
    selection = read_selection(request, choice.chosen)
    back = _next(request) or back
    if choice.fault:
        messages.error(request, choice.fault)
        return HttpResponseRedirect(back)
    if selection.everything and not everything:
        messages.error(request, gettext("Tick the jobs that are meant."))
        return HttpResponseRedirect(back)
    try:
        total, exact = selection.count()
        if total == 0:
            messages.warning(request, gettext("No job was chosen, so that nothing was changed."))
            return HttpResponseRedirect(back)
        # What was shown is what has to be typed, even if letters have come or gone meanwhile.
        phrase = f"{verb.name} {request.POST.get('shown') or total}"
        typed = request.POST.get("typed", "").strip()
        if "confirmed" in request.POST and (not selection.everything or typed == phrase):
            _act(request, verb, selection)
            return HttpResponseRedirect(back)
    except DuctorError as error:
        messages.error(request, str(error))
        return HttpResponseRedirect(back)
    return draw(
        owner,
        request,
        "confirm.html",
        verb.title,
        {
            "verb": verb,
            "selection": selection,
            "parameters": filter_parameters(selection.pool, selection.filter),
            "conditions": _conditions(selection),
            "total": total,
            "exact": exact,
            "most": MOST,
            "phrase": f"{verb.name} {total}",
            "mistyped": "confirmed" in request.POST,
            "examples": selection.ids[:SHOWN],
            "others": max(0, len(selection.ids) - SHOWN),
            "note": request.POST.get("note", "")[:NOTE_MOST],
            "note_most": NOTE_MOST,
            "back": back,
        },
    )


def _act(request: HttpRequest, verb: Verb, selection: Selection) -> None:
    ids = selection.public_ids()
    note = request.POST.get("note", "").strip()[:NOTE_MOST]
    done = verb.act()(ids, by=username(request), note=note)
    (messages.error if done.fault else messages.success)(request, done.summary())
    if selection.surplus:
        messages.warning(
            request,
            ngettext(
                "%(count)d more job was chosen than one request takes; it is unchanged.",
                "%(count)d more jobs were chosen than one request takes; they are unchanged.",
                selection.surplus,
            )
            % {"count": selection.surplus},
        )
    if selection.everything and len(ids) == MOST:
        messages.warning(
            request,
            gettext("One request takes the newest %(most)d. What is left of the matching ones is still here: go on.")
            % {"most": MOST},
        )
    what = f"{verb.name}: {done.summary()}"
    if selection.everything:
        what += f" ({', '.join(f'{name}={value}' for name, value in _filter(selection).items()) or 'no filter'})"
    if note:
        what += f" {note}"
    if len(ids) == 1:
        record(request, Jobs, ids[0], what, object_id=ids[0])
    else:
        about = ngettext("%(count)d job of %(pool)s", "%(count)d jobs of %(pool)s", len(ids))
        record(request, DeadLetters, about % {"count": len(ids), "pool": selection.pool}, what)


def _filter(selection: Selection) -> dict[str, str]:
    return {name: value for name, value in filter_parameters("", selection.filter).items() if name != "pool"}


def _conditions(selection: Selection) -> list[tuple[str, str]]:
    """The filter in words."""
    asked = selection.filter
    named = (
        (gettext("Pool"), selection.pool),
        (gettext("Tenant"), asked.tenant),
        (gettext("Task"), asked.task),
        (gettext("Died of"), asked.reason),
        (gettext("Group"), asked.group),
        (gettext("Died before"), moment_ms(asked.before_ms)),
    )
    return [(name, value) for name, value in named if value]


def _next(request: HttpRequest) -> str:
    wanted = request.POST.get("next", "")
    ours = url_has_allowed_host_and_scheme(
        wanted, allowed_hosts={request.get_host()}, require_https=request.is_secure()
    )
    return wanted if ours else ""


__all__ = ["CANCEL", "DISCARDING", "RETRY", "Verb", "confirm_or_act"]

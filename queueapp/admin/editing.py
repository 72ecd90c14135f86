"""The arguments of a dead letter in the admin: a form, a page that says what would change, then the act and its record.

The form shows arguments masked, and a mask that is left there stands for the value that is hidden
(`inspection.editing`). What was typed goes from page to page, and nowhere else until it is confirmed.
"""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext as _

from queueapp.admin.acting import NOTE_MOST
from queueapp.admin.choosing import number, refuse_unknown
from queueapp.admin.pages import ask, draw
from queueapp.admin.records import record, username
from queueapp.admin.showing import MESSAGE_SHOWN, edited, job_url, pretty
from queueapp.errors import DuctorError
from queueapp.inspection.editing import Draft, draft, save
from queueapp.inspection.edits import parsed, spelt
from queueapp.inspection.jobs import JobView, find_job
from queueapp.inspection.masking import HIDDEN
from queueapp.models import Jobs
from queueapp.producer.task import find
from queueapp.states import State

KNOWN = frozenset({"csrfmiddlewaretoken", "args", "kwargs", "edits", "note", "act"})
"""The fields of both pages. `act`: again (the form once more), save, retry; none of them: say what would change."""


def edit(owner: admin.ModelAdmin[Any], request: HttpRequest, public_id: str) -> HttpResponse:
    """The view behind all of it. It ends on the job's page."""
    back = job_url(request, public_id)
    answer = ask(lambda: find_job(public_id))
    job = answer.value
    typed = {name: request.POST.get(name, "") for name in ("args", "kwargs", "note")}
    if answer.fault:
        return _page(owner, request, public_id, typed, edits=request.POST.get("edits", ""), fault=answer.fault)
    if job is None or job.record.state is not State.DEAD:
        messages.error(request, _("This is no dead letter any more, so that nothing was changed."))
        return HttpResponseRedirect(back)
    if request.method != "POST":
        return _form(owner, request, job, _as_it_is(job))
    if request.POST.get("act") == "again":
        return _form(owner, request, job, typed)
    try:
        refuse_unknown(request.POST, KNOWN)
        made = draft(
            job,
            args=parsed(typed["args"], "args", list),
            kwargs=parsed(typed["kwargs"], "kwargs", dict),
            edits=number(request.POST, "edits", most=2**53),
        )
        if request.POST.get("act") in ("save", "retry"):
            return _save(request, made, typed["note"].strip()[:NOTE_MOST], back)
    except DuctorError as error:
        # With what it has now: somebody else may have edited it.
        now = ask(lambda: find_job(public_id)).value
        return _form(owner, request, now or job, typed, fault=str(error))
    return draw(
        owner,
        request,
        "edit_letter_confirm.html",
        _("Edit a dead letter"),
        {
            "id": job.id,
            "job": job,
            "typed": typed,
            "edits": job.record.edits,
            "changes": [(change.place, spelt(change.before), spelt(change.after)) for change in made.changes],
            "hidden": HIDDEN,
            "begins_anew": made.begins_anew,
            "back": back,
        },
    )


def _save(request: HttpRequest, made: Draft, note: str, back: str) -> HttpResponse:
    saved = save(made, by=username(request), note=note, retry=request.POST.get("act") == "retry")
    places = ", ".join(made.places)
    said = _("Edited: %(places)s.") % {"places": places}
    retried = saved.retried
    if retried is not None:
        said += " " + retried.summary()
    (messages.success if retried is None or retried.done else messages.warning)(request, said)
    what = f"edit: {places}" + (f"; retry: {retried.summary()}" if retried is not None else "")
    record(request, Jobs, made.job.id, f"{what} {note}".strip(), object_id=made.job.id)
    return HttpResponseRedirect(back)


def _form(
    owner: admin.ModelAdmin[Any], request: HttpRequest, job: JobView, typed: dict[str, str], *, fault: str = ""
) -> HttpResponse:
    try:
        find(job.record.task)
    except DuctorError as error:
        fault = fault or str(error)
    known = {
        "job": job,
        "facts": _facts(job),
        "now": _as_it_is(job) if fault else None,
    }
    return _page(owner, request, job.id, typed, edits=str(job.record.edits), fault=fault, **known)


def _page(
    owner: admin.ModelAdmin[Any],
    request: HttpRequest,
    public_id: str,
    typed: dict[str, str],
    *,
    edits: str,
    fault: str,
    **known: Any,
) -> HttpResponse:
    """The form; while the store is away without what is `known` of the job, so that nothing typed is lost."""
    shown = {"id": public_id, "typed": typed, "edits": edits, "hidden": HIDDEN, "note_most": NOTE_MOST, "fault": fault}
    context = {**shown, "back": job_url(request, public_id), **known}
    return draw(owner, request, "edit_letter.html", _("Edit a dead letter"), context)


def _facts(job: JobView) -> list[tuple[str, str]]:
    """What one wants to see while one edits."""
    record, detail = job.record, job.last_error.detail if job.last_error is not None else {}
    said = ": ".join(str(detail[name])[:MESSAGE_SHOWN] for name in ("class", "message") if detail.get(name))
    known = [
        (_("Task"), record.task),
        (_("Pool"), job.pool),
        (_("Tenant"), record.tenant),
        (_("Died of"), record.reason),
        (_("Last error"), said),
        (_("Edited"), edited(job)),
    ]
    return [(name, value) for name, value in known if value]


def _as_it_is(job: JobView) -> dict[str, str]:
    args, kwargs = job.arguments() or ([], {})
    return {"args": pretty(args), "kwargs": pretty(kwargs), "note": ""}

"""Jobs in the admin: lists by pool and state, and the page of one job, which is that of a dead letter, too."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.utils import quote, unquote
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, reverse
from django.utils import timezone
from django.utils.translation import gettext as _

from queueapp.admin import acting
from queueapp.admin.choosing import PAGE_SIZES, address, page_size, word
from queueapp.admin.pages import POST, Pages, allowed, ask, choose_pool, draw
from queueapp.admin.records import record, username
from queueapp.admin.showing import attempts, facts, job_row, job_url, moment, pretty
from queueapp.inspection.actions import record_note
from queueapp.inspection.estimates import in_words
from queueapp.inspection.explain import GONE, Why, explain, not_sent
from queueapp.inspection.jobs import JobView, find_job, list_jobs
from queueapp.models import DeadLetterInspection, Jobs
from queueapp.permissions import DISCARD_JOB, OPERATE_JOB, VIEW_OPERATIONS, VIEW_PAYLOAD
from queueapp.states import State

HISTORY_SHOWN = 50


@admin.register(Jobs)
class JobsAdmin(Pages):
    """Lists by state; what can be done depends on the state."""

    def get_urls(self) -> list[URLPattern]:
        return [
            self.route("", self.list_page, "changelist"),
            self.route("cancel/", self.cancel, "cancel", needs=(VIEW_OPERATIONS, OPERATE_JOB), methods=POST),
            self.route("<str:job_id>/", self.job_page, "change"),
            self.route("<str:job_id>/note/", self.note, "note", needs=(VIEW_OPERATIONS, OPERATE_JOB), methods=POST),
        ]

    def list_page(self, request: HttpRequest) -> HttpResponse:
        """The jobs of one pool in one state; with an id in the search field, that job's page."""
        if sought := word(request.GET, "id"):
            return HttpResponseRedirect(job_url(request, sought))
        choice, per = choose_pool(request), page_size(request.GET)
        state = word(request.GET, "state")
        if state and state not in set(State):
            messages.warning(request, _("There is no state “%(state)s”.") % {"state": state[:60]})
        state = State(state) if state in set(State) else State.ACTIVE
        tenant, task = word(request.GET, "tenant"), word(request.GET, "task")
        cursor = word(request.GET, "cursor")
        answer = choice.ask(
            lambda pool: list_jobs(pool, state.value, tenant=tenant, task=task, cursor=cursor, count=per)
        )
        parameters = {"pool": choice.chosen, "state": state.value, "tenant": tenant, "task": task, "per": str(per)}
        context: dict[str, Any] = {
            "choice": choice,
            "fault": answer.fault,
            "state": state.value,
            "states": [(each.value, address("", parameters | {"state": each.value})) for each in State],
            "tenant": tenant,
            "task": task,
            "per": per,
            "sizes": PAGE_SIZES,
            "may_act": allowed(request, OPERATE_JOB) and (state.waits or state in (State.ACTIVE, State.DEAD)),
            "may_cancel": state.waits or state is State.ACTIVE,
            "may_retry": state is State.DEAD,
            "here": request.get_full_path(),
        }
        if found := answer.value:
            context |= {
                "found": found,
                "rows": [job_row(request, job, contents=False) for job in found.jobs],
                "first_page": address("", parameters) if cursor else "",
                "next": address("", parameters | {"cursor": found.next_cursor}) if found.next_cursor else "",
            }
        return draw(self, request, "jobs.html", _("Jobs"), context)

    def job_page(self, request: HttpRequest, job_id: str) -> HttpResponse:
        """What is known of a job: facts and attempts; contents for those who may see them; what people did to it."""
        public_id = unquote(job_id).replace("\0", "")
        contents = allowed(request, VIEW_PAYLOAD)
        answer = ask(lambda: (find_job(public_id), explain(public_id, contents=contents)))
        job, why = answer.value or (None, not_sent(public_id))
        context: dict[str, Any] = {
            "id": public_id,
            "why": _why(request, why) if why is not None and why.state != GONE else None,
            "fault": answer.fault,
            "job": job,
            "contents": contents,
            "history": self._history(request, public_id),
            "here": job_url(request, public_id),
            "note_most": acting.NOTE_MOST,
        }
        if job is not None:
            dead, live = job.state == State.DEAD, job.record.state.waits or job.record.state is State.ACTIVE
            context |= {
                "dead": dead,
                "may_cancel": live and not job.cancelling and allowed(request, OPERATE_JOB),
                "may_retry": dead and allowed(request, OPERATE_JOB),
                "may_discard": dead and allowed(request, DISCARD_JOB),
                "may_note": dead and allowed(request, OPERATE_JOB),
                "edit_url": self._edit_url(public_id) if dead and allowed(request, OPERATE_JOB, VIEW_PAYLOAD) else "",
                "facts": facts(job),
                "attempts": attempts(job, contents=contents),
                "group_url": address(
                    reverse("admin:queueapp_deadletters_changelist", current_app=self.admin_site.name),
                    {"pool": job.pool, "group": job.group},
                ),
                "lists_url": address(self._url("changelist"), {"pool": job.pool, "state": job.record.state.value}),
            }
            context |= _contents(job) if contents else {}
        response = draw(self, request, "job.html", job.record.task if job is not None else public_id, context)
        if job is None and not answer.fault and not context["why"]:
            response.status_code = 404
        return response

    def cancel(self, request: HttpRequest) -> HttpResponse:
        back = address(self._url("changelist"), {"pool": request.POST.get("pool", ""), "state": State.PENDING.value})
        return acting.confirm_or_act(self, request, acting.CANCEL, back=back)

    def note(self, request: HttpRequest, job_id: str) -> HttpResponse:
        """A remark about a dead letter, for whoever looks at it next."""
        public_id = unquote(job_id).replace("\0", "")
        answer, text = ask(lambda: find_job(public_id)), request.POST.get("note", "").strip()[: acting.NOTE_MOST]
        job = answer.value
        if answer.fault:
            messages.error(request, answer.fault)
        elif job is None or job.state != State.DEAD:
            messages.error(request, _("This is no dead letter any more, so that nothing was noted."))
        elif text:
            record_note(job, text, by=username(request))
            record(request, Jobs, job.id, f"note: {text}", object_id=job.id)
            messages.success(request, _("Noted."))
        return HttpResponseRedirect(job_url(request, public_id))

    def _history(self, request: HttpRequest, public_id: str) -> list[dict[str, str]]:
        if not allowed(request, "view_deadletterinspection"):
            return []
        return [
            {
                "at": moment(timezone.make_aware(row.created) if timezone.is_naive(row.created) else row.created),
                "by": row.by,
                "what": str(row.get_action_display()),
                "note": row.note,
            }
            for row in DeadLetterInspection.objects.filter(job_id=public_id)[:HISTORY_SHOWN]
        ]

    def _edit_url(self, public_id: str) -> str:
        return reverse("admin:queueapp_deadletters_edit", args=[quote(public_id)], current_app=self.admin_site.name)

    def _url(self, name: str) -> str:
        return reverse(f"admin:queueapp_jobs_{name}", current_app=self.admin_site.name)


def _why(request: HttpRequest, why: Why) -> dict[str, Any]:
    """What it waits for: the sentence, its further parts, who holds its place, and when."""
    return {
        "sentence": why.sentence,
        "parts": [reason.text for reason in why.reasons[1:] if not reason.blocks],
        "holders": [(held, job_url(request, held)) for reason in why.reasons for held in reason.held_by],
        "estimate": why.estimate and in_words(why.estimate),
    }


def _contents(job: JobView) -> dict[str, str]:
    """Arguments, result and what the task saved, masked, as JSON to read; "" for what there is not."""
    arguments, saved = job.arguments(), job.saved()
    return {
        "arguments": pretty({"args": arguments[0], "kwargs": arguments[1]}) if arguments is not None else "",
        "result": pretty(job.result()) if job.record.result is not None else "",
        "saved": pretty(saved) if saved else "",
    }

"""Dead letters in the admin: groups, list, retry, discard, export, edit. All of it straight from the store."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.urls import URLPattern, reverse
from django.utils.translation import gettext as _

from queueapp.admin import acting, editing, export
from queueapp.admin.choosing import (
    MOST,
    OFFSET_MOST,
    PAGE_SIZES,
    address,
    filter_parameters,
    number,
    page_size,
    read_filter,
)
from queueapp.admin.pages import FORM, POST, Pages, allowed, choose_pool, draw
from queueapp.admin.showing import job_row, moment, moment_ms
from queueapp.inspection.deadletters import dead_groups, dead_letters
from queueapp.models import DeadLetters
from queueapp.permissions import DISCARD_JOB, OPERATE_JOB, VIEW_OPERATIONS, VIEW_PAYLOAD

GROUPS_PER_PAGE = 25


@admin.register(DeadLetters)
class DeadLettersAdmin(Pages):
    """The list is the entry of the index; the groups stand beside it."""

    def get_urls(self) -> list[URLPattern]:
        return [
            self.route("", self.list_page, "changelist"),
            self.route("groups/", self.groups_page, "groups"),
            self.route("retry/", self.retry, "retry", needs=(VIEW_OPERATIONS, OPERATE_JOB), methods=POST),
            self.route("discard/", self.discard, "discard", needs=(VIEW_OPERATIONS, DISCARD_JOB), methods=POST),
            self.route("export/", self.export, "export", methods=POST),
            self.route(
                "<str:job_id>/edit/",
                self.edit,
                "edit",
                needs=(VIEW_OPERATIONS, VIEW_PAYLOAD, OPERATE_JOB),
                methods=FORM,
            ),
        ]

    def list_page(self, request: HttpRequest) -> HttpResponse:
        """A page of one pool's dead letters, the newest first, as of the moment when its first page was opened."""
        choice, wanted = choose_pool(request), read_filter(request.GET)
        offset = number(request.GET, "offset", most=OFFSET_MOST)
        per = page_size(request.GET)
        answer = choice.ask(lambda pool: dead_letters(pool, wanted, offset=offset, count=per))
        contents = allowed(request, VIEW_PAYLOAD)
        context: dict[str, Any] = {
            "choice": choice,
            "fault": answer.fault,
            "filter": wanted,
            "per": per,
            "sizes": PAGE_SIZES,
            "contents": contents,
            "may_retry": allowed(request, OPERATE_JOB),
            "may_discard": allowed(request, DISCARD_JOB),
            "most": MOST,
            "export_most": export.MOST,
            "here": request.get_full_path(),
            "groups_url": address(self.url("groups"), {"pool": choice.chosen}),
        }
        if found := answer.value:
            parameters = filter_parameters(choice.chosen, wanted) | {"before": str(found.as_of_ms), "per": str(per)}
            context |= {
                "found": found,
                "rows": [job_row(request, letter, contents=contents) for letter in found.letters],
                "parameters": {name: value for name, value in parameters.items() if name != "per"},
                "as_of": moment_ms(found.as_of_ms),
                "first": offset + 1,
                "last": offset + len(found.letters),
                "now_url": address("", filter_parameters(choice.chosen, wanted) | {"before": "", "per": str(per)}),
                "previous": address("", {**parameters, "offset": max(0, offset - per)}) if offset else "",
                "next": address("", {**parameters, "offset": found.next_offset}) if found.next_offset else "",
            }
        return draw(self, request, "dead_letters.html", _("Dead letters"), context)

    def groups_page(self, request: HttpRequest) -> HttpResponse:
        """What dies of the same cause, counted; the group that had the last death first."""
        choice = choose_pool(request)
        offset = number(request.GET, "offset", most=OFFSET_MOST)
        answer = choice.ask(lambda pool: dead_groups(pool, offset=offset, count=GROUPS_PER_PAGE))
        contents = allowed(request, VIEW_PAYLOAD)
        groups, total = answer.value or ([], 0)
        following = offset + GROUPS_PER_PAGE
        context = {
            "choice": choice,
            "fault": answer.fault,
            "contents": contents,
            "here": request.get_full_path(),
            "list_url": address(self.url("changelist"), {"pool": choice.chosen}),
            "total": total,
            "rows": [
                {
                    "group": group.fingerprint,
                    "url": address(self.url("changelist"), {"pool": choice.chosen, "group": group.fingerprint}),
                    "count": group.count,
                    "first": moment(group.first_at),
                    "last": moment(group.last_at),
                    "sample": job_row(request, group.sample, contents=contents),
                }
                for group in groups
            ],
            "previous": address("", {"pool": choice.chosen, "offset": max(0, offset - GROUPS_PER_PAGE)})
            if offset
            else "",
            "next": address("", {"pool": choice.chosen, "offset": following}) if following < total else "",
        }
        return draw(self, request, "dead_groups.html", _("Dead letters by cause"), context)

    def retry(self, request: HttpRequest) -> HttpResponse:
        return acting.confirm_or_act(self, request, acting.RETRY, back=self._list(request))

    def discard(self, request: HttpRequest) -> HttpResponse:
        return acting.confirm_or_act(self, request, acting.DISCARDING, back=self._list(request))

    def export(self, request: HttpRequest) -> HttpResponseBase:
        return export.export(request, back=self._list(request), contents=allowed(request, VIEW_PAYLOAD))

    def edit(self, request: HttpRequest, job_id: str) -> HttpResponse:
        return editing.edit(self, request, unquote(job_id).replace("\0", ""))

    def url(self, name: str) -> str:
        return reverse(f"admin:queueapp_deadletters_{name}", current_app=self.admin_site.name)

    def _list(self, request: HttpRequest) -> str:
        """The list with the filter of the form, as of now."""
        parameters = filter_parameters(request.POST.get("pool", ""), read_filter(request.POST))
        return address(self.url("changelist"), parameters | {"before": ""})

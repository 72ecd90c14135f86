"""Jobs in the admin: lists by state, one job's page, cancelling, notes; pools at work; tenants seen."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.admin.utils import quote
from django.test import Client
from django.urls import reverse

from queueapp.models import DeadLetterInspection, Pool, Tenant, TenantLimits
from queueapp.names import SYSTEM_TENANT
from queueapp.store import shards
from queueapp.store.configuration import PoolConf
from queueapp.store.records import Completed
from queueapp.store.store import Store
from tests.unit.admin.conftest import IN_AN_ARGUMENT, SECRET, Login, enqueue, fail, lease, public
from tests.unit.admin.test_dead_letters import ids_on, states, text

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("redis_url")]

LIST, CANCEL = (
    reverse(f"admin:queueapp_jobs_{name}", urlconf="tests.unit.admin.urls") for name in ("changelist", "cancel")
)
POOLS = reverse("admin:queueapp_operations_changelist", urlconf="tests.unit.admin.urls")
SEEN = reverse("admin:queueapp_tenant_seen", urlconf="tests.unit.admin.urls")


def page_of(job_id: str) -> str:
    return reverse("admin:queueapp_jobs_change", args=[quote(job_id)], urlconf="tests.unit.admin.urls")


def one_of_each() -> dict[str, str]:
    """State → public id of a job in it."""
    dead = fail()
    enqueue()
    [(ended, attempts)] = lease()
    shards.store("default").complete([Completed(id=ended, attempts=attempts, run_ms=1500, result=b'{"token": "t0"}')])
    enqueue()
    [(active, _)] = lease()
    pending, scheduled = enqueue(), enqueue(delay_ms=3_600_000)
    ids = public([pending[0], scheduled[0], active, ended])
    return dict(zip(("pending", "scheduled", "active", "ended", "dead"), [*ids, *dead], strict=True))


def test_each_state_has_its_list(admin_client: Client) -> None:
    for state, job_id in one_of_each().items():
        answer = admin_client.get(LIST, {"state": state})
        assert ids_on(answer) == [job_id], state
        assert answer.context["found"].total == 1


def test_each_job_has_its_page_and_the_buttons_that_fit_its_state(admin_client: Client) -> None:
    buttons = {
        "pending": "cancel",
        "scheduled": "cancel",
        "active": "cancel",
        "dead": "retry discard note",
        "ended": "",
    }
    for state, job_id in one_of_each().items():
        context = admin_client.get(page_of(job_id)).context
        shown = [name for name in ("cancel", "retry", "discard", "note") if context.get(f"may_{name}")]
        assert " ".join(shown) == buttons[state], state
        assert dict(context["facts"])["State"] == {"ended": "completed"}.get(state, state)


def test_contents_of_a_job_are_masked_and_take_a_right(login: Login) -> None:
    jobs = one_of_each()
    without, within = login("view_operations"), login("view_operations", "view_payload")
    assert "&quot;amount&quot;: 3" in text(within.get(page_of(jobs["pending"])))
    assert "&quot;token&quot;: &quot;****" in text(within.get(page_of(jobs["ended"])))
    for job_id in jobs.values():
        assert SECRET not in text(within.get(page_of(job_id)))
        answer = without.get(page_of(job_id))
        shown = text(answer)
        assert not [name for name in ("arguments", "result", "saved") if name in answer.context]
        assert "amount" not in shown
        assert IN_AN_ARGUMENT not in shown


def test_a_job_is_found_by_its_id(admin_client: Client) -> None:
    [job_id] = public(enqueue())
    assert admin_client.get(LIST, {"id": f" {job_id} "}).headers["Location"] == page_of(job_id)


@pytest.mark.parametrize("job_id", ["x", "abcdef.0.0123456789012345678901", "a/b", "%00", "…", "x" * 3000])
def test_an_id_of_no_job_is_not_found(admin_client: Client, job_id: str) -> None:
    answer = admin_client.get(page_of(job_id))
    assert answer.status_code == 404
    assert "There is no job of this id" in text(answer)


@pytest.mark.parametrize("cursor", ["x", "|||", "9" * 400, "-"])
def test_a_wrong_cursor_is_a_message(admin_client: Client, cursor: str) -> None:
    answer = admin_client.get(LIST, {"cursor": cursor, "state": "dead"})
    assert answer.status_code == 200
    assert "cursor" in answer.context["fault"]


def test_a_running_job_is_told_to_stop_and_shown_so(admin_client: Client) -> None:
    job_id = one_of_each()["active"]
    done = admin_client.post(CANCEL, {"ids": job_id, "confirmed": "yes"}, follow=True)
    assert [str(message) for message in done.context["messages"]] == ["1 told to stop."]
    answer = admin_client.get(page_of(job_id))
    assert not answer.context["may_cancel"], "it has been"
    assert dict(answer.context["facts"])["Told to stop"]
    assert "It was told to stop" in text(answer)
    assert " · stopping" in text(admin_client.get(LIST, {"state": "active"}))


@pytest.mark.parametrize("state", ["pending", "scheduled"])
def test_waiting_jobs_are_cancelled_and_others_left_alone(admin_client: Client, state: str) -> None:
    jobs = one_of_each()
    form = {"ids": list(jobs.values()), "confirmed": "yes", "note": "not wanted"}
    assert admin_client.post(CANCEL, {"ids": jobs[state]}).context["total"] == 1
    done = admin_client.post(CANCEL, form, follow=True)
    assert dict(zip(jobs, states(list(jobs.values())), strict=True)) == {
        "pending": "cancelled",
        "scheduled": "cancelled",
        "active": "active",
        "ended": "completed",
        "dead": "dead",
    }
    [message] = done.context["messages"]
    assert str(message).startswith("2 cancelled")
    [entry] = LogEntry.objects.all()
    assert "not wanted" in entry.change_message


def test_to_cancel_all_that_match_must_be_typed(admin_client: Client) -> None:
    dead, [job_id], [other] = fail(), public(enqueue()), public(enqueue(tenant="globex"))
    [late] = public(enqueue(delay_ms=9_000_000))
    form = {"scope": "all", "state": "pending", "tenant": "acme"}
    asked = admin_client.post(CANCEL, form)
    assert asked.context["phrase"] == "cancel 1"
    form |= {"before": asked.context["parameters"]["before"], "confirmed": "yes", "shown": "1"}
    assert admin_client.post(CANCEL, form | {"typed": "yes"}).context["mistyped"]
    assert states([job_id]) == ["pending"]
    admin_client.post(CANCEL, form | {"typed": "cancel 1"})
    assert states([job_id, other, late, *dead]) == ["cancelled", "pending", "scheduled", "dead"]
    [entry] = LogEntry.objects.all()
    assert "cancel: 1 cancelled. (state=pending, tenant=acme, before=" in entry.change_message


def test_a_note_is_kept_with_the_dead_letter(admin_client: Client, login: Login) -> None:
    [letter] = fail()
    noted = admin_client.post(f"{page_of(letter)}note/", {"note": "the gateway was down"})
    assert noted.headers["Location"] == page_of(letter)
    [row] = DeadLetterInspection.objects.all()
    assert (row.action, row.note, row.by, row.error) == ("noted", "the gateway was down", "admin", "shop.Refused")
    assert "the gateway was down" in text(admin_client.get(page_of(letter)))
    assert "the gateway was down" not in text(login("view_operations").get(page_of(letter)))
    assert "the gateway was down" in text(login("view_operations", "view_deadletterinspection").get(page_of(letter)))


def test_only_a_dead_letter_is_noted(admin_client: Client) -> None:
    [waiting] = public(enqueue())
    for job_id in (waiting, "x"):
        admin_client.post(f"{page_of(job_id)}note/", {"note": "hm"})
    assert not DeadLetterInspection.objects.exists()
    assert not LogEntry.objects.exists()


# -- pools at work ---------------------------------------------------------------------------------------------------


def test_the_pools_stand_in_one_table(admin_client: Client) -> None:
    one_of_each()
    enqueue(3, pool="mail")
    Pool.objects.create(name="idle")
    sizes = {pool.name: pool.sizes for pool in admin_client.get(POOLS).context["pools"]}
    assert {"default", "idle", "mail"} <= sizes.keys()
    default = sizes["default"]
    assert (default.waiting, default.active, default.scheduled, default.dead, default.ended) == (2, 1, 1, 1, 1)
    assert sizes["mail"].waiting == 3
    assert sizes["idle"].waiting == 0


def test_a_pool_has_a_page(admin_client: Client) -> None:
    one_of_each()
    answer = admin_client.get(reverse("admin:queueapp_operations_pool", args=["default"]))
    assert answer.context["status"].waiting == 2
    assert ("acme", 2) in [(tenant, waiting) for tenant, waiting, _ in answer.context["tenants"]]
    assert "No worker serves this pool" in text(answer) or "worker" in text(answer)
    assert admin_client.get(reverse("admin:queueapp_operations_pool", args=["nothing"])).status_code == 404


def test_a_pool_with_scheduled_dispatch_says_what_waits_for_whom(store: Store, admin_client: Client) -> None:
    page = reverse("admin:queueapp_operations_pool", args=["default"])
    assert "in ingress" not in text(admin_client.get(page))
    store.configure(1, pool=PoolConf(policy="drr", dispatch="scheduled", window=7))
    shown = text(admin_client.get(page))
    assert "in ingress" in shown
    assert "scheduled, window 7" in shown
    assert "No leader: nothing is dispatched." in shown


# -- tenants seen ----------------------------------------------------------------------------------------------------


def test_tenants_without_settings_are_listed_with_a_form_to_add_some(admin_client: Client) -> None:
    pool = Pool.objects.create(name="mail")
    Tenant.objects.create(key="acme")
    enqueue(2, pool="mail")
    enqueue(3, pool="mail", tenant="globex")
    seen = admin_client.get(SEEN, {"pool": "mail"})
    assert [(tenant.key, tenant.waiting) for tenant, *_ in seen.context["rows"]] == [("globex", 3)]
    assert seen.context["hidden"] == 1
    every = admin_client.get(SEEN, {"pool": "mail", "every": "1"})
    assert {tenant.key for tenant, *_ in every.context["rows"]} == {"acme", "globex"}
    [(*_, add, _)] = seen.context["rows"]
    form = admin_client.get(add)
    assert form.context["adminform"].form["key"].value() == "globex"
    [line] = form.context["inline_admin_formsets"][0].formset.forms
    assert line["pool"].value() == pool.pk
    data = {
        "key": "globex",
        "limits-TOTAL_FORMS": 1,
        "limits-INITIAL_FORMS": 0,
        "limits-0-pool": pool.pk,
        "limits-0-weight": "3",
        "limits-0-min_share": "0",
        "limits-0-period_seconds": "1",
        "limits-0-burst": "1",
        "limits-0-dispatch_period_seconds": "1",
        "limits-0-dispatch_burst": "1",
    }
    assert admin_client.post(add, data).status_code == 302
    [limits] = TenantLimits.objects.all()
    assert (limits.tenant.key, limits.pool, limits.weight) == ("globex", pool, 3.0)


def test_set_limits_takes_the_right_to_add(login: Login) -> None:
    enqueue(tenant="globex")
    assert "set limits" not in text(login("view_operations").get(SEEN))
    assert "set limits" in text(login("view_operations", "add_tenant").get(SEEN))


def test_nobody_sets_limits_for_the_wake_ups_of_runs(admin_client: Client) -> None:
    """Its name is none that a tenant's row can have."""
    enqueue(tenant=SYSTEM_TENANT)
    shown = text(admin_client.get(SEEN))
    assert SYSTEM_TENANT in shown
    assert "set limits" not in shown


def test_deleting_a_tenant_removes_its_settings_and_no_job(admin_client: Client) -> None:
    tenant = Tenant.objects.create(key="acme")
    TenantLimits.objects.create(pool=Pool.objects.create(name="default"), tenant=tenant)
    jobs = public(enqueue(2))
    admin_client.post(reverse("admin:queueapp_tenant_delete", args=[tenant.pk]), {"post": "yes"})
    assert not Tenant.objects.exists()
    assert not TenantLimits.objects.exists()
    assert states(jobs) == ["pending", "pending"]


def test_links_between_the_pages_lead_somewhere(admin_client: Client) -> None:
    one_of_each()

    found: set[str] = set()
    answers: list[Any] = [POOLS, LIST, SEEN, reverse("admin:queueapp_deadletters_changelist")]
    for address in answers:
        page = text(admin_client.get(address))
        found |= {
            link.replace("&amp;", "&") if link.startswith("/") else address + link.replace("&amp;", "&")
            for link in re.findall(r'href="([^"#][^"]*)"', page.split('id="content-start"')[1])
        }
    assert len(found) > 15
    for link in found:
        assert admin_client.get(link).status_code == 200, link

"""The admin: what can be edited where, how much it asks of the database, and how it fares without the store."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import Permission, User
from django.core.management import call_command
from django.test import Client
from django.urls import path, reverse
from django.utils.functional import Promise

from queueapp import models
from queueapp.models import KeyLimit, Pool, Tenant, TenantLimits
from queueapp.store import shards
from queueapp.store.configuration import Rate, ScopeLimits
from queueapp.store.records import NewJob
from queueapp.sync import delivery
from tests.unit.conftest import SilentStore

urlpatterns = [path("admin/", admin.site.urls)]

pytestmark = [pytest.mark.urls(__name__), pytest.mark.django_db]


@pytest.fixture
def limits(db: None) -> list[TenantLimits]:
    pool = Pool.objects.create(name="mail")
    tenants = [Tenant.objects.create(key=key, name=key.title()) for key in ("acme", "globex")]
    return [TenantLimits.objects.create(pool=pool, tenant=tenant) for tenant in tenants]


def list_edit(rows: list[Any], **changes: object) -> dict[str, object]:
    """The form of a change list in which `changes` are made to the first row."""
    form: dict[str, object] = {"form-TOTAL_FORMS": len(rows), "form-INITIAL_FORMS": len(rows), "_save": "Save"}
    for number, row in enumerate(rows):
        values = {"id": row.pk, "weight": row.weight, "max_in_flight": row.max_in_flight or "", "paused": row.paused}
        values["min_share"] = getattr(row, "min_share", 0)
        values |= changes if number == 0 else {}
        form |= {f"form-{number}-{name}": value for name, value in values.items() if value is not False}
    return form


PAGES = [
    ("pool_changelist", ()),
    ("pool_add", ()),
    ("pool_change", (Pool, "mail")),
    ("tenant_changelist", ()),
    ("tenant_add", ()),
    ("tenant_change", (Tenant, "acme")),
    ("tenantlimits_changelist", ()),
    ("tenantlimits_add", ()),
    ("tenantlimits_change", (TenantLimits, "acme")),
]


def address(name: str, which: tuple[Any, ...]) -> str:
    args = []
    if which:
        model, text = which
        lookup = {Pool: "name", Tenant: "key", TenantLimits: "tenant__key"}[model]
        args = [model.objects.get(**{lookup: text}).pk]
    return reverse(f"admin:queueapp_{name}", args=args)


@pytest.mark.parametrize(("name", "which"), PAGES)
def test_every_page_opens_without_the_store(
    away: None, admin_client: Client, limits: list[TenantLimits], name: str, which: tuple[Any, ...]
) -> None:
    assert admin_client.get(address(name, which)).status_code == 200


@pytest.mark.parametrize("search", ["acme", "Globex", ""])
@pytest.mark.parametrize("model", ["pool", "tenant", "tenantlimits"])
def test_the_lists_can_be_searched(admin_client: Client, limits: list[TenantLimits], model: str, search: str) -> None:
    assert admin_client.get(reverse(f"admin:queueapp_{model}_changelist"), {"q": search}).status_code == 200


@pytest.mark.django_db(transaction=True)
def test_a_weight_edited_in_the_list_is_in_force_when_the_page_answers(
    redis_url: str, admin_client: Client, limits: list[TenantLimits]
) -> None:
    page = reverse("admin:queueapp_tenantlimits_changelist")
    answer = admin_client.post(page, list_edit(limits, weight="2.5", max_in_flight="7", paused="on"))
    assert answer.status_code == 302
    assert shards.reads("mail").scope_limits()["acme", ""] == ScopeLimits(
        tenant="acme", weight=2.5, max_in_flight=7, paused=True
    )


@pytest.mark.django_db(transaction=True)
def test_a_ceiling_of_a_pool_edited_in_the_list_is_in_force_when_the_page_answers(
    redis_url: str, admin_client: Client
) -> None:
    pool = Pool.objects.create(name="mail")
    form = {"form-TOTAL_FORMS": 1, "form-INITIAL_FORMS": 1, "_save": "Save", "form-0-id": pool.pk}
    page = reverse("admin:queueapp_pool_changelist")
    assert admin_client.post(page, form | {"form-0-max_in_flight": "0"}).status_code == 302
    assert shards.reads("mail").configured().max_in_flight == 0


@pytest.mark.parametrize("weight", ["0", "-1", "nan", "1e9", "heavy"])
def test_a_wrong_weight_in_the_list_is_shown_and_nothing_is_saved(
    admin_client: Client, limits: list[TenantLimits], weight: str
) -> None:
    page = reverse("admin:queueapp_tenantlimits_changelist")
    answer = admin_client.post(page, list_edit(limits, weight=weight))
    assert answer.status_code == 200
    assert answer.context["cl"].formset.errors[0]["weight"]
    assert set(TenantLimits.objects.values_list("weight", flat=True)) == {1.0}


def test_an_empty_weight_is_what_holds_without_limits(admin_client: Client, limits: list[TenantLimits]) -> None:
    page = reverse("admin:queueapp_tenantlimits_changelist")
    assert admin_client.post(page, list_edit(limits, weight="")).status_code == 302
    [empty] = TenantLimits.objects.filter(weight=None).select_related("pool")
    empty.pool.default_weight = 7
    assert (empty.asked_weight, empty.lane) == (7, "")


@pytest.mark.django_db(transaction=True)
def test_saving_in_the_list_does_not_hang_when_the_store_is_silent(
    silent: SilentStore, admin_client: Client, limits: list[TenantLimits], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "_quiet_until", 0.0)
    page = reverse("admin:queueapp_tenantlimits_changelist")
    form = list_edit(limits, weight="2.5") | {"form-1-weight": "3"}
    assert admin_client.post(page, form).status_code == 302
    assert silent.asked == 1
    assert sorted(row.asked_weight for row in TenantLimits.objects.all()) == [2.5, 3.0]


@pytest.mark.django_db(transaction=True)
def test_limits_are_edited_within_their_tenant(
    redis_url: str, admin_client: Client, limits: list[TenantLimits]
) -> None:
    row = limits[0]
    pool = Pool.objects.create(name="post")
    form = {
        "name": "Acme",
        "notes": "",
        "limits-TOTAL_FORMS": 2,
        "limits-INITIAL_FORMS": 1,
        "limits-0-id": row.pk,
        "limits-0-tenant": row.tenant_id,
        "limits-0-pool": pool.pk,  # for whom limits are cannot be changed: not taken
        "limits-0-lane": "other",
        "limits-0-weight": "4",
        "limits-0-min_share": "2",
        "limits-0-rate": "100",
        "limits-0-period_seconds": "60",
        "limits-0-burst": "10",
        "limits-0-backlog_limit": "500",
        "limits-0-dispatch_rate": "3",
        "limits-0-dispatch_period_seconds": "0.5",
        "limits-0-dispatch_burst": "2",
        "limits-1-tenant": row.tenant_id,
        "limits-1-pool": pool.pk,
        "limits-1-lane": "bulk",
        "limits-1-weight": "0.5",
        "limits-1-min_share": "0",
        "limits-1-period_seconds": "1",
        "limits-1-burst": "1",
        "limits-1-dispatch_period_seconds": "1",
        "limits-1-dispatch_burst": "1",
    }
    answer = admin_client.post(reverse("admin:queueapp_tenant_change", args=[row.tenant_id]), form)
    assert answer.status_code == 302, answer.context["errors"]
    assert shards.reads("mail").scope_limits()["acme", ""] == ScopeLimits(
        tenant="acme",
        weight=4.0,
        min_share=2,
        rate=Rate(rate=100, period_ms=60_000, burst=10),
        backlog_limit=500,
        dispatch_rate=Rate(rate=3, period_ms=500, burst=2),
    )
    assert ("acme", "other") not in shards.reads("mail").scope_limits()
    assert shards.reads("post").scope_limits() == {
        ("acme", "bulk"): ScopeLimits(tenant="acme", lane="bulk", weight=0.5)
    }


@pytest.mark.parametrize(
    ("name", "field", "which"),
    [("pool_change", "name", (Pool, "mail")), ("tenant_change", "key", (Tenant, "acme"))],
)
def test_names_stay_after_creation(
    away: None, admin_client: Client, limits: list[TenantLimits], name: str, field: str, which: tuple[Any, ...]
) -> None:
    page = address(name, which)
    form = admin_client.get(page).context["adminform"].form
    assert field not in form.fields
    assert (
        field in admin_client.get(reverse(f"admin:queueapp_{name.split('_')[0]}_add")).context["adminform"].form.fields
    )


# -- deleting a pool ---------------------------------------------------------------------------------------------


def job(state: str = "waiting") -> NewJob:
    late = 3_600_000 if state == "scheduled" else 0
    return NewJob(
        id="0" * 22, task="shop.tasks.send", tenant="acme", payload=b"{}", fingerprint="0" * 16, delay_ms=late
    )


def delete_both_ways(client: Client, pool: Pool) -> list[str]:
    """Tries the delete page and the action of the list; the messages shown."""
    shown = []
    for page, form in (
        (reverse("admin:queueapp_pool_delete", args=[pool.pk]), {"post": "yes"}),
        (
            reverse("admin:queueapp_pool_changelist"),
            {"action": "delete_selected", "_selected_action": [pool.pk], "post": "yes"},
        ),
    ):
        answer = client.post(page, form, follow=True)
        assert answer.status_code == 200
        shown += [str(message) for message in answer.context["messages"]]
    return shown


@pytest.mark.parametrize("state", ["waiting", "scheduled", "active", "dead"])
def test_a_pool_with_a_job_is_not_deleted(redis_url: str, admin_client: Client, state: str) -> None:
    pool = Pool.objects.create(name="mail")
    store = shards.store("mail")
    store.enqueue([job(state)])
    if state == "active":
        store.check_and_lease("w1", 1, want=1, begin=1, lease_ms=30_000)
    if state == "dead":
        store.move_to_dlq(["0" * 22], "test")
    shown = delete_both_ways(admin_client, pool)
    assert Pool.objects.filter(pk=pool.pk).exists()
    assert len(shown) == 2
    assert set(shown) == {"The pool “mail” still has 1 job: let it end, cancel or discard it first."}


def test_a_pool_without_jobs_is_deleted(redis_url: str, admin_client: Client) -> None:
    pool = Pool.objects.create(name="mail")
    store = shards.store("mail")
    store.enqueue([job()])
    store.cancel(["0" * 22])
    shown = delete_both_ways(admin_client, pool)
    assert not Pool.objects.exists()
    assert "deleted successfully" in shown[0]


def test_no_pool_is_deleted_while_the_store_is_away(away: None, admin_client: Client) -> None:
    pool = Pool.objects.create(name="mail")
    shown = delete_both_ways(admin_client, pool)
    assert Pool.objects.exists()
    assert shown[0].startswith("A pool is not deleted while nobody can say whether it has jobs. The store at ")
    assert shown[0].endswith("Try again later.")


def test_deleting_many_pools_does_not_hang_when_the_store_is_silent(silent: SilentStore, admin_client: Client) -> None:
    pools = [Pool.objects.create(name=f"p{number}") for number in range(5)]
    form = {"action": "delete_selected", "_selected_action": [pool.pk for pool in pools], "post": "yes"}
    assert admin_client.post(reverse("admin:queueapp_pool_changelist"), form).status_code == 200
    assert silent.asked == 1
    assert Pool.objects.count() == 5


# -- cost, language, rights --------------------------------------------------------------------------------------


def queries_of(page: str, client: Client, django_assert_max_num_queries: Any, most: int) -> int:
    with django_assert_max_num_queries(most) as queries:
        assert client.get(page).status_code == 200
    return len(queries)


@pytest.mark.parametrize(
    "name",
    ["pool_changelist", "tenant_changelist", "tenantlimits_changelist", "keylimit_changelist", "tenant_change"],
)
def test_the_number_of_queries_does_not_grow_with_the_rows(
    away: None, admin_client: Client, limits: list[TenantLimits], name: str, django_assert_max_num_queries: Any
) -> None:
    which = (Tenant, "acme") if name == "tenant_change" else ()
    page = address(name, which)
    before = queries_of(page, admin_client, django_assert_max_num_queries, 20)
    acme = Tenant.objects.get(key="acme")
    for number in range(15):
        pool = Pool.objects.create(name=f"p{number}")
        TenantLimits.objects.create(pool=pool, tenant=acme)
        KeyLimit.objects.create(pool=pool, pattern="all")
        TenantLimits.objects.create(pool=pool, tenant=Tenant.objects.create(key=f"t{number}"))
    assert queries_of(page, admin_client, django_assert_max_num_queries, 20) <= before + 1


def test_every_label_is_translated_lazily() -> None:
    for model in (models.Pool, models.Tenant, models.TenantLimits, models.KeyLimit, models.Operations):
        assert isinstance(model._meta.verbose_name, Promise), model
        for field in model._meta.local_fields:
            if field.name != "id":
                assert isinstance(field.verbose_name, Promise), field


def test_a_user_who_may_only_look_is_shown_no_form_and_changes_nothing(
    away: None, client: Client, limits: list[TenantLimits]
) -> None:
    user = User.objects.create_user("looker", password="x", is_staff=True)
    user.user_permissions.add(*Permission.objects.filter(codename__in=["view_pool", "view_tenantlimits"]))
    client.force_login(user)
    page = reverse("admin:queueapp_tenantlimits_changelist")
    assert client.get(page).context["cl"].formset is None
    client.post(page, list_edit(limits, weight="9"))
    assert set(TenantLimits.objects.values_list("weight", flat=True)) == {1.0}
    pool = Pool.objects.get()
    assert client.post(reverse("admin:queueapp_pool_delete", args=[pool.pk]), {"post": "yes"}).status_code == 403


def test_whoever_reads_all_models_finds_those_without_a_table_empty() -> None:
    Pool.objects.create(name="mail")
    written = StringIO()
    call_command("dumpdata", "queueapp", stdout=written)
    assert {row["model"] for row in json.loads(written.getvalue())} == {"queueapp.pool"}
    assert not models.Operations.objects.exists()


def test_what_was_changed_stands_in_the_log(away: None, admin_client: Client, limits: list[TenantLimits]) -> None:
    admin_client.post(reverse("admin:queueapp_tenantlimits_changelist"), list_edit(limits, weight="2"))
    history = admin_client.get(reverse("admin:queueapp_tenantlimits_history", args=[limits[0].pk]))
    assert "Changed Weight." in history.content.decode()

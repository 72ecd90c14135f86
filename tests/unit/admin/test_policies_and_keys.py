"""The forms of pools offer policies with their parameters; limits of concurrency keys are rows of their own."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from django.contrib.admin.utils import quote
from django.test import Client
from django.urls import reverse

from queueapp import Key, task
from queueapp.models import KeyLimit, Pool
from queueapp.policies.registry import POLICIES
from queueapp.producer.discovery import registry
from queueapp.store import shards
from queueapp.store.configuration import PoolConf, Rate
from queueapp.store.store import Store
from tests.producing import add
from tests.unit.admin.test_dead_letters import text

pytestmark = pytest.mark.django_db

FORM = {
    "name": "mail",
    "policy": "aging",
    "dispatch": "direct",
    "dispatch_window": "0",
    "edf_by": "deadline",
    "aging_step_seconds": "90",
    "default_weight": "1",
    "cost_unit": "ms",
    "default_cost": "50",
    "continue_weight": "10",
}
ADD = "admin:queueapp_pool_add"
RATE = {
    **{"rate": "5", "period_seconds": "1.5", "burst": "2"},
    **{"dispatch_rate": "6", "dispatch_period_seconds": "2.5", "dispatch_burst": "3"},
}


def charge(customer_id: int) -> None: ...


@pytest.fixture
def charged() -> Iterator[str]:
    """A task of the project that has a key."""
    made = task(concurrency=[Key("customer:{customer_id}", 2), Key("all", 9)])(charge)
    yield made.module_path
    del registry[made.module_path]


# -- policies ------------------------------------------------------------------------------------------------------


def test_the_form_offers_every_policy_that_there_is_in_one_line(admin_client: Client) -> None:
    form = admin_client.get(reverse(ADD)).context["adminform"].form
    offered = dict(form.fields["policy"].choices)
    assert set(offered) == POLICIES.keys()
    assert all(str(label).startswith(f"{name}: ") for name, label in offered.items())
    for name, policy in (("edf_by", "edf"), ("aging_step_seconds", "aging")):
        said = str(form.fields[name].help_text)
        assert policy in str(form.fields[name].label) + said
        assert "other policies ignore it" in said
        assert "ranked anew while work goes on" in said


@pytest.mark.django_db(transaction=True)
def test_a_policy_and_its_parameter_are_saved_and_in_force(redis_url: str, admin_client: Client) -> None:
    assert admin_client.post(reverse(ADD), FORM).status_code == 302
    assert shards.reads("mail").configured() == PoolConf(policy="aging", step_ms=90_000)
    assert "aging 90 s a step" in text(admin_client.get(reverse("admin:queueapp_pool_changelist")))


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"policy": "drr"}, "dispatch", "“direct” has no policy “drr”"),
        ({"policy": "fifa"}, "policy", "fifa"),
        ({"dispatch_window": "-1"}, "dispatch_window", "greater than or equal to 0"),
        ({"policy": "edf", "edf_by": "latest_start", "cost_unit": "rows"}, "edf_by", "set the cost unit to “ms”"),
        ({"aging_step_seconds": "0"}, "aging_step_seconds", "use a number from 0.001 to 86400"),
        ({"aging_step_seconds": ""}, "aging_step_seconds", "required"),
    ],
)
def test_what_does_not_fit_is_shown_beside_its_field(
    away: None, admin_client: Client, changes: dict[str, str], field: str, words: str
) -> None:
    answer = admin_client.post(reverse(ADD), FORM | changes)
    assert answer.status_code == 200
    assert words in " ".join(answer.context["adminform"].form.errors[field])
    assert not Pool.objects.exists()


# -- limits of keys ------------------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_a_limit_is_added_and_edited_in_the_list(redis_url: str, admin_client: Client) -> None:
    pool = Pool.objects.create(name="mail")
    form = {"pool": pool.pk, "pattern": "customer:{customer_id}", "max_in_flight": "3", **RATE}
    assert admin_client.post(reverse("admin:queueapp_keylimit_add"), form).status_code == 302
    [stored] = shards.reads("mail").key_limits().values()
    assert (stored.text, stored.max_in_flight) == ("customer:{customer_id}", 3)
    assert stored.rate == Rate(rate=5, period_ms=1_500, burst=2)
    assert stored.dispatch_rate == Rate(rate=6, period_ms=2_500, burst=3)

    rows = {"form-TOTAL_FORMS": 1, "form-INITIAL_FORMS": 1, "_save": "Save", "form-0-id": KeyLimit.objects.get().pk}
    page = reverse("admin:queueapp_keylimit_changelist")
    assert admin_client.post(page, rows | {"form-0-max_in_flight": ""}).status_code == 302
    [stored] = shards.reads("mail").key_limits().values()
    assert stored.max_in_flight is None


def test_pool_and_pattern_stay_after_creation(away: None, admin_client: Client) -> None:
    row = KeyLimit.objects.create(pool=Pool.objects.create(name="mail"), pattern="all", max_in_flight=1)
    page = reverse("admin:queueapp_keylimit_change", args=[row.pk])
    assert admin_client.post(page, {"pattern": "other", "max_in_flight": "2", **RATE}).status_code == 302
    row.refresh_from_db()
    assert (row.pattern, row.max_in_flight) == ("all", 2)


def test_a_pattern_of_bad_form_is_shown_beside_its_field(away: None, admin_client: Client) -> None:
    pool = Pool.objects.create(name="mail")
    answer = admin_client.post(reverse("admin:queueapp_keylimit_add"), {"pool": pool.pk, "pattern": "{a.b}"})
    assert "a field is the name of a parameter" in answer.context["adminform"].form.errors["pattern"][0]


def test_the_list_says_which_tasks_name_a_pattern(away: None, admin_client: Client, charged: str) -> None:
    pool = Pool.objects.create(name="mail")
    KeyLimit.objects.create(pool=pool, pattern="customer:{customer_id}", max_in_flight=1)
    page = reverse("admin:queueapp_keylimit_changelist")
    assert f"{charged} (2)" in text(admin_client.get(page))
    KeyLimit.objects.update(pattern="custmer:{customer_id}")
    assert "no task that is declared here" in text(admin_client.get(page))


def test_a_long_list_of_tasks_is_cut(away: None, admin_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    made = task(concurrency=Key("all", 1))(charge)
    for number in range(12):
        monkeypatch.setitem(registry, f"alias{number}", made)
    del registry[made.module_path]
    KeyLimit.objects.create(pool=Pool.objects.create(name="mail"), pattern="all")
    assert text(admin_client.get(reverse("admin:queueapp_keylimit_changelist"))).count(made.module_path) == 1


# -- deadlines -----------------------------------------------------------------------------------------------------


def test_the_page_of_a_job_tells_its_deadline(store: Store, admin_client: Client) -> None:
    job = add.using(deadline=datetime(2099, 1, 31, 9, tzinfo=UTC)).enqueue(1)
    page = admin_client.get(reverse("admin:queueapp_jobs_change", args=[quote(job.id)]))
    assert dict(page.context["facts"])["Deadline"].startswith("2099-01-31")
    other = admin_client.get(reverse("admin:queueapp_jobs_change", args=[quote(add.enqueue(1).id)]))
    assert "Deadline" not in dict(other.context["facts"])

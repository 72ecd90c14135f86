"""Who may open and do what: every address of ours × every kind of user × GET and POST, against one table."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from queueapp.models import Operations
from queueapp.store import shards
from tests.unit.admin.addresses import Page, names, pages
from tests.unit.admin.conftest import Login, fail
from tests.unit.admin.test_dead_letters import DISCARD, EXPORT, LIST, RETRY, states, text

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("redis_url")]

NOBODY = ("nobody",)


@dataclass(frozen=True, slots=True)
class Row:
    """What a view needs and answers: `get` and `post` are statuses for who may; 405 is for whoever is of the staff.

    `needs`: groups of permissions, any one of which is enough. `post_needs`: the same for POST, where that differs.
    """

    needs: tuple[tuple[str, ...], ...]
    get: int
    post: int
    post_needs: tuple[tuple[str, ...], ...] | None = None


LOOK = (("view_operations",),)
READ = Row(LOOK, 200, 405)


def act(*permissions: str) -> Row:
    # An empty form chooses nothing and leads back.
    return Row((("view_operations", *permissions),), 405, 302)


def rows_of(model: str, *, editable: bool, deletable: bool) -> dict[str, Row]:
    """The pages that Django makes for a model with rows."""
    look = ((f"view_{model}",), (f"change_{model}",))
    nobody = (NOBODY,)
    return {
        f"{model}_changelist": Row(look, 200, 200),
        f"{model}_history": Row(look, 200, 200),
        f"{model}_change": Row(look, 200, 200, ((f"change_{model}",),) if editable else nobody),
        f"{model}_add": Row(((f"add_{model}",),) if editable else nobody, 200, 200),
        f"{model}_delete": Row(((f"delete_{model}",),) if deletable else nobody, 200, 200),
    }


TABLE: dict[str, Row] = {
    "operations_changelist": READ,
    "operations_pool": READ,
    "operations_operate": act("operate_pool"),
    "jobs_changelist": READ,
    "jobs_change": READ,
    "jobs_cancel": act("operate_job"),
    "jobs_note": act("operate_job"),
    "deadletters_changelist": READ,
    "deadletters_groups": READ,
    "deadletters_retry": act("operate_job"),
    "deadletters_discard": act("discard_job"),
    "deadletters_export": act(),
    "deadletters_edit": Row((("view_operations", "view_payload", "operate_job"),), 200, 200),
    "tenant_seen": READ,
    "pool_rename": Row((("change_pool",),), 200, 200),
    **rows_of("pool", editable=True, deletable=True),
    **rows_of("tenant", editable=True, deletable=True),
    **rows_of("tenantlimits", editable=True, deletable=True),
    **rows_of("keylimit", editable=True, deletable=True),
    **rows_of("schedule", editable=True, deletable=True),
    "schedule_preview": Row((("view_schedule",), ("add_schedule",), ("change_schedule",)), 200, 405),
    **rows_of("outboxentry", editable=False, deletable=True),
    **rows_of("deadletterinspection", editable=False, deletable=False),
}
UNLOCK_NOTHING = ("view_all_tenants",)
"""Its actions are not pages of the admin: the REST API."""

OURS = [name for name, _ in Operations._meta.permissions]
MODELS = [
    f"{action}_{model}"
    for model in ("pool", "tenant", "tenantlimits", "keylimit", "schedule", "outboxentry", "deadletterinspection")
    for action in ("view", "add", "change", "delete")
]
SETS: list[tuple[str, ...]] = [
    (),
    *((name,) for name in [*OURS, *MODELS]),
    *(("view_operations", name) for name in OURS if name != "view_operations"),
    ("view_operations", "view_payload", "operate_job"),
]


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Thousands of refusals, each with a traceback in the log, take as long as the requests."""
    caplog.set_level(logging.ERROR, logger="django.request")


def wanted(row: Row, held: frozenset[str], method: str, *, superuser: bool = False) -> int:
    """The status for somebody of the staff."""
    needs = row.post_needs if method == "POST" and row.post_needs is not None else row.needs
    allowed = row.get if method == "GET" else row.post
    if allowed == 405:
        return 405
    may = any(group != NOBODY and (superuser or held >= set(group)) for group in needs)
    return allowed if may else 403


def differences(client: Client, found: list[Page], held: frozenset[str], *, superuser: bool = False) -> Iterator[str]:
    for page in found:
        for method in ("GET", "POST"):
            answer = client.generic(method, page.url)
            expected = wanted(TABLE[page.name], held, method, superuser=superuser)
            # An empty form shows its faults, or is saved where no field is required.
            fits = (200, 302) if (method, expected) == ("POST", 200) else (expected,)
            if answer.status_code not in fits:
                yield f"{method} {page.name}: {answer.status_code}, not {expected}"


def test_the_table_names_every_view_and_every_permission() -> None:
    assert TABLE.keys() == names().keys()
    stored = Permission.objects.filter(content_type__app_label="queueapp").values_list("codename", flat=True)
    assert set(stored) == {*OURS, *MODELS}, "a permission is missing in the table, or has no model"
    used = {name for row in TABLE.values() for group in (*row.needs, *(row.post_needs or ())) for name in group}
    assert not used & set(UNLOCK_NOTHING)


@pytest.mark.parametrize("held", SETS, ids="+".join)
def test_every_view_for_every_set_of_permissions(login: Login, held: tuple[str, ...]) -> None:
    assert list(differences(login(*held), pages(), frozenset(held))) == []


@pytest.mark.compat
def test_every_view_for_a_superuser(admin_client: Client) -> None:
    assert list(differences(admin_client, pages(), frozenset(), superuser=True)) == []


@pytest.mark.parametrize("who", ["anonymous", "plain"])
def test_who_is_not_of_the_staff_is_sent_to_the_login(login: Login, who: str) -> None:
    client = Client() if who == "anonymous" else login(*OURS, *MODELS, staff=False)
    for page in pages():
        for method in ("GET", "POST"):
            answer = client.generic(method, page.url)
            assert answer.status_code == 302, page
            assert answer.headers["Location"].startswith("/admin/login/"), page


def test_no_post_works_without_a_token(admin_user: User) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(admin_user)
    letters = fail(2)
    for page in pages():
        answer = client.post(page.url, {"ids": letters, "confirmed": "yes", "post": "yes"})
        assert answer.status_code == 403, page
    assert set(states(letters)) == {"dead"}


def test_nobody_gets_further_with_the_permissions_that_unlock_nothing(login: Login) -> None:
    found = pages()
    everything_else = [name for name in OURS if name not in UNLOCK_NOTHING]
    with_them, without = login(*OURS), login(*everything_else)
    for page in found:
        for method in ("GET", "POST"):
            assert with_them.generic(method, page.url).status_code == without.generic(method, page.url).status_code, (
                page
            )


@pytest.mark.parametrize(
    ("held", "address"),
    [
        (("view_operations",), RETRY),
        (("view_operations",), DISCARD),
        (("view_operations", "operate_job", "operate_pool", "view_payload"), DISCARD),
        (("view_operations", "discard_job", "operate_pool", "view_payload"), RETRY),
        (("operate_job", "discard_job"), RETRY),
        (("operate_job", "discard_job"), DISCARD),
    ],
)
def test_c156_who_lacks_the_right_sees_no_button_and_a_direct_post_is_refused(
    login: Login, held: tuple[str, ...], address: str
) -> None:
    letters = fail(3)
    client = login(*held)
    if "view_operations" in held:
        page = text(client.get(LIST))
        assert address not in page
        assert EXPORT in page
        assert address not in text(client.get(f"/admin/queueapp/jobs/{letters[0]}/".replace("_", "_5F")))
    answer = client.post(address, {"ids": letters, "confirmed": "yes"})
    assert answer.status_code == 403
    assert set(states(letters)) == {"dead"}


def test_who_may_only_look_is_offered_no_way_to_save(login: Login) -> None:
    found = pages()
    looks = [name for name in [*OURS, *MODELS] if name.startswith("view_") and name != "view_all_tenants"]
    client = login(*looks)
    for page in found:
        answer = client.get(page.url)
        if answer.status_code == 200 and answer["Content-Type"].startswith("text/html"):
            shown = text(answer)
            assert 'name="_save"' not in shown, page
            assert 'name="action"' not in shown, page
            # What is left to post: the way out, and the export.
            forms = (
                shown.count('method="post"') - shown.count('id="changelist-form"') - shown.count('_form" novalidate')
            )
            assert forms == 1 + (page.name == "deadletters_changelist"), page
    assert shards.reads("default").overview().dead == 1

"""The tenant of a request: which resolver holds, when it is asked, and what it may be, in both worlds."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.conf import settings as django_settings
from django.contrib.auth.models import AnonymousUser, Group, User
from django.core.exceptions import DisallowedHost, ImproperlyConfigured
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.test import AsyncClient, Client, RequestFactory
from django.test.utils import override_settings
from django.urls import path

from queueapp import aenqueue_many, enqueue_many, tenant
from queueapp.errors import InvalidOption
from queueapp.middleware import TenantMiddleware, from_attribute, from_header, from_subdomain
from queueapp.producer import tenancy
from queueapp.producer.tenancy import current_tenant, resolve_tenant
from queueapp.store.reads import Reads
from tests.producing import add

asked: list[str] = []


def by_header(request: HttpRequest) -> str | None:
    asked.append("header")
    return request.headers.get("X-Tenant")


async def by_header_later(request: HttpRequest) -> str | None:
    asked.append("later")
    await asyncio.sleep(0)
    return request.headers.get("X-Tenant")


def by_table(request: HttpRequest) -> str | None:
    """One that needs the database."""
    group = Group.objects.filter(name=request.headers.get("X-Group")).first()
    return f"group-{group.name}" if group else None


def nobody(request: HttpRequest) -> None:
    asked.append("nobody")


def house(request: HttpRequest) -> str:
    asked.append("house")
    return "house"


def wrong(request: HttpRequest) -> object:
    return "a b"


def broken(request: HttpRequest) -> object:
    raise LookupError("the host's own fault")


def enqueues(request: HttpRequest) -> HttpResponse:
    return HttpResponse(add.enqueue(1).id)


def enqueues_for(request: HttpRequest) -> HttpResponse:
    return HttpResponse(add.using(tenant="named").enqueue(1).id)


def enqueues_many(request: HttpRequest) -> HttpResponse:
    return HttpResponse("".join(str(outcome.word) for outcome in enqueue_many([add.bind(1), add.bind(2)])))


def enqueues_nothing(request: HttpRequest) -> HttpResponse:
    return HttpResponse()


def streams(request: HttpRequest) -> StreamingHttpResponse:
    def parts() -> Iterator[str]:
        yield str(current_tenant())
        with tenant("by-hand"):
            yield str(current_tenant())

    return StreamingHttpResponse(parts())


async def aenqueues(request: HttpRequest) -> HttpResponse:
    return HttpResponse((await add.aenqueue(1)).id)


async def aenqueues_for(request: HttpRequest) -> HttpResponse:
    return HttpResponse((await add.using(tenant="named").aenqueue(1)).id)


async def aenqueues_many(request: HttpRequest) -> HttpResponse:
    return HttpResponse("".join(str(outcome.word) for outcome in await aenqueue_many([add.bind(1), add.bind(2)])))


async def enqueues_in_the_loop(request: HttpRequest) -> HttpResponse:
    return HttpResponse(add.enqueue(1).id)


async def enqueues_in_a_thread(request: HttpRequest) -> HttpResponse:
    return HttpResponse((await sync_to_async(add.enqueue)(1)).id)


urlpatterns = [
    path(view.__name__, view)
    for view in (
        enqueues,
        enqueues_for,
        enqueues_many,
        enqueues_nothing,
        streams,
        aenqueues,
        aenqueues_for,
        aenqueues_many,
        enqueues_in_the_loop,
        enqueues_in_a_thread,
    )
]

pytestmark = [pytest.mark.urls(__name__), pytest.mark.django_db(transaction=True)]

Get = Callable[..., Any]


@pytest.fixture(autouse=True)
def _site(settings: Any) -> None:
    asked.clear()
    tenancy._warned.clear()
    settings.MIDDLEWARE = ["queueapp.middleware.TenantMiddleware"]


def resolved_by(*resolvers: Any) -> Any:
    return override_settings(DUCTOR={**django_settings.DUCTOR, "TENANT_RESOLVERS": list(resolvers)})


@pytest.fixture(params=["sync", "async"])
def get(request: pytest.FixtureRequest) -> Get:
    """Ask a view by the synchronous client (WSGI) or by the asynchronous one (ASGI)."""
    if request.param == "sync":
        return lambda where, **headers: Client().get(f"/{where}", headers=headers)
    return lambda where, **headers: asyncio.run(AsyncClient().get(f"/{where}", headers=headers))


def tenant_of(response: Any, reads: Reads) -> str:
    record = reads.job(response.content.decode()[-22:])
    assert record is not None
    return record.tenant


@pytest.mark.parametrize("view", ["enqueues", "aenqueues", "enqueues_in_the_loop", "enqueues_in_a_thread"])
def test_the_first_answer_holds_and_none_passes_on(get: Get, view: str, reads: Reads) -> None:
    with resolved_by(nobody, f"{__name__}.by_header", house):
        assert tenant_of(get(view, x_tenant="acme"), reads) == "acme"
        assert asked == ["nobody", "header"]
        assert tenant_of(get(view), reads) == "house"
    assert current_tenant() is None


@pytest.mark.parametrize("view", ["enqueues", "aenqueues"])
def test_without_an_answer_the_default_holds_and_it_is_told(
    get: Get, view: str, reads: Reads, caplog: pytest.LogCaptureFixture
) -> None:
    with resolved_by(nobody):
        assert [tenant_of(get(view), reads) for _ in range(2)] == ["default", "default"]

    warnings = [record for record in caplog.records if record.name == "queueapp.producer.tenancy"]
    assert [(record.levelname, record.task) for record in warnings] == [("WARNING", add.module_path)]  # type: ignore[attr-defined]  # what `extra` gave it
    assert add.module_path in warnings[0].getMessage()  # a host's handler shows the message alone


def test_without_resolvers_the_default_is_what_was_wanted(caplog: pytest.LogCaptureFixture) -> None:
    assert resolve_tenant(None, "shop.tasks.mail") == "default"
    assert caplog.records == []


@pytest.mark.parametrize("view", ["enqueues_for", "aenqueues_for"])
def test_the_tasks_own_option_comes_first_and_then_nobody_is_asked(get: Get, view: str, reads: Reads) -> None:
    with resolved_by(house):
        assert tenant_of(get(view), reads) == "named"
    assert asked == []


def test_a_request_that_enqueues_nothing_asks_nobody(get: Get) -> None:
    with resolved_by(house):
        get("enqueues_nothing")
    assert asked == []


@pytest.mark.parametrize("view", ["enqueues_many", "aenqueues_many"])
def test_each_request_is_asked_once(get: Get, view: str) -> None:
    with resolved_by(house):
        assert get(view).content == b"enqueuedenqueued"
        assert asked == ["house"]
        get(view)
        assert asked == ["house", "house"]


@pytest.mark.parametrize("view", ["enqueues", "aenqueues", "enqueues_in_a_thread"])
def test_a_resolver_may_be_asynchronous(get: Get, view: str, reads: Reads) -> None:
    with resolved_by(by_header_later):
        assert tenant_of(get(view, x_tenant="acme"), reads) == "acme"


def test_an_asynchronous_one_cannot_be_waited_for_inside_the_loop(get: Get) -> None:
    with resolved_by(by_header_later), pytest.raises(InvalidOption, match=r"by_header_later .*aenqueue"):
        get("enqueues_in_the_loop", x_tenant="acme")


@pytest.mark.parametrize("resolver", [by_header_later, by_table])
def test_in_bulk_too(get: Get, resolver: Any) -> None:
    Group.objects.create(name="a")
    with resolved_by(resolver):
        assert get("aenqueues_many", x_tenant="acme", x_group="a").content == b"enqueuedenqueued"


@pytest.mark.parametrize("view", ["enqueues", "aenqueues", "enqueues_in_a_thread"])
def test_a_resolver_may_ask_the_database(get: Get, view: str, reads: Reads) -> None:
    Group.objects.create(name="a")
    with resolved_by(by_table):
        assert tenant_of(get(view, x_group="a"), reads) == "group-a"


@pytest.mark.parametrize("view", ["enqueues", "aenqueues"])
def test_what_is_no_tenant_is_an_error_that_names_the_resolver(get: Get, view: str) -> None:
    with (
        resolved_by(nobody, wrong),
        pytest.raises(InvalidOption, match=r"TENANT_RESOLVERS.*test_middleware\.wrong.*'a b'"),
    ):
        get(view)
    with resolved_by(from_header("X-Tenant")), pytest.raises(InvalidOption, match=r"from_header\('X-Tenant'\)"):
        get(view, x_tenant="_ours")


def test_what_a_resolver_raises_is_the_hosts_own(get: Get) -> None:
    with resolved_by(broken), pytest.raises(LookupError, match="the host's own fault"):
        get("enqueues")


def test_one_that_cannot_be_imported_names_the_setting(get: Get) -> None:
    with (
        resolved_by("shop.nowhere.at_all"),
        pytest.raises(ImproperlyConfigured, match=r"TENANT_RESOLVERS.*shop\.nowhere"),
    ):
        get("enqueues")


def test_the_tenant_around_a_request_holds_where_nobody_answers(reads: Reads) -> None:
    with resolved_by(nobody), tenant("outer"):
        assert tenant_of(Client().get("/enqueues"), reads) == "outer"
    with resolved_by(house), tenant("outer"):
        assert tenant_of(Client().get("/enqueues"), reads) == "house"


def test_nested_middlewares_fall_back_on_the_outer_one() -> None:
    outer, inner = RequestFactory().get("/", headers={"x-tenant": "acme"}), RequestFactory().get("/")

    async def settled() -> str | None:
        with tenancy.of_request(outer), tenancy.of_request(inner):
            await tenancy.settle()
            asked.clear()
            return current_tenant()

    with resolved_by(by_header):
        with tenancy.of_request(outer), tenancy.of_request(inner):
            assert current_tenant() == "acme"
        assert (asyncio.run(settled()), asked) == ("acme", [])


def test_a_stream_runs_outside_of_it() -> None:
    """The caveat that the module tells; `with tenant(...)` in the generator is the remedy."""
    with resolved_by(house):
        response: Any = Client().get("/streams")
        assert [part.decode() for part in response.streaming_content] == ["None", "by-hand"]


def test_a_response_that_raises_leaves_no_tenant() -> None:
    def fail(request: HttpRequest) -> HttpResponse:
        raise LookupError

    with resolved_by(house):
        with pytest.raises(LookupError):
            TenantMiddleware(fail)(RequestFactory().get("/"))
        assert current_tenant() is None


def test_the_middleware_is_asynchronous_where_django_is() -> None:
    async def response(request: HttpRequest) -> HttpResponse:
        return HttpResponse()

    from asgiref.sync import iscoroutinefunction

    assert iscoroutinefunction(TenantMiddleware(response))
    assert not iscoroutinefunction(TenantMiddleware(lambda request: HttpResponse()))


class TestReadyMade:
    @pytest.mark.parametrize(
        ("where", "found"),
        [
            ("user.company_id", 7),
            ("user.pk", 3),
            ("tenant.schema_name", "acme"),
            ("user.nothing.at_all", None),
            ("nothing", None),
        ],
    )
    def test_from_attribute(self, where: str, found: object) -> None:
        user = User(pk=3)
        user.company_id = 7  # type: ignore[attr-defined]  # an attribute of this test
        request: Any = SimpleNamespace(user=user, tenant=SimpleNamespace(schema_name="acme"))

        assert from_attribute(where)(request) == found

    def test_from_attribute_of_nobody(self) -> None:
        request: Any = SimpleNamespace(user=AnonymousUser())
        assert from_attribute("user.pk")(request) is None

    def test_from_header(self) -> None:
        factory = RequestFactory()
        resolver = from_header("X-Tenant")
        assert resolver(factory.get("/", headers={"x-tenant": "acme"})) == "acme"
        assert resolver(factory.get("/", headers={"x-tenant": ""})) is None
        assert resolver(factory.get("/")) is None

    @pytest.mark.parametrize(
        ("host", "found"),
        [
            ("acme.example.com", "acme"),
            ("ACME.Example.com:8000", "acme"),
            ("eu.acme.example.com", "eu.acme"),
            ("www.example.com", None),
            ("example.com", None),
            ("acme.example.org", None),
            ("notexample.com", None),
        ],
    )
    def test_from_subdomain(self, host: str, found: str | None, settings: Any) -> None:
        settings.ALLOWED_HOSTS = ["*"]
        assert from_subdomain("example.com")(RequestFactory().get("/", headers={"host": host})) == found

    def test_from_subdomain_takes_no_host_that_is_not_allowed(self, settings: Any) -> None:
        settings.ALLOWED_HOSTS = ["example.com"]
        with pytest.raises(DisallowedHost):
            from_subdomain("example.com")(RequestFactory().get("/", headers={"host": "acme.example.com"}))

    def test_settings_files_can_import_them(self) -> None:
        """Before there are settings, and without Django's models."""
        code = (
            "import sys, queueapp.middleware as m; m.from_header('X'); "
            "print(sorted(name for name in sys.modules if name == 'django' or name.startswith('django.')))"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
        assert done.stdout.strip() == "[]"

"""The OpenAPI document: complete, without warnings, the one in docs, and not needed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client
from django.urls import path
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.utils import extend_schema, extend_schema_view

from flows.api import urls as flow_urls
from queueapp.api import job_shapes, urls
from queueapp.api.jobs import JobView
from queueapp.api.requests import BULK_MAX
from queueapp.states import Outcome, State

ROOT = Path(__file__).resolve().parents[3]
SNAPSHOT = ROOT / "docs/openapi.json"
MAKE = "manage.py spectacular --format openapi-json --file docs/openapi.json"


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the command makes of the example project. A warning is an error, and so is what OpenAPI does not allow."""
    file = tmp_path_factory.mktemp("openapi") / "openapi.json"
    call_command("spectacular", format="openapi-json", file=str(file), fail_on_warn=True, validate=True)
    made: dict[str, Any] = json.loads(file.read_text())
    return made


def test_the_document_in_docs_is_the_one_of_the_code(document: dict[str, Any]) -> None:
    kept = json.loads(SNAPSHOT.read_text())
    assert document == kept, f"The API or its description has changed. Look at the difference, then: {MAKE}"


def test_every_route_and_every_method_is_described(document: dict[str, Any]) -> None:
    described = {(path, verb) for path, verbs in document["paths"].items() for verb in verbs}
    there = {
        ("/api/ductor/" + route.replace("<str:", "{").replace(">", "}"), verb)
        for route, view in (*urls.ROUTES.values(), *flow_urls.ROUTES.values())
        for verb in ("get", "post", "put", "patch", "delete")
        if verb in view.http_method_names and hasattr(view, verb)
    }
    assert described == there


def test_each_operation_says_what_may_come_back(document: dict[str, Any]) -> None:
    for route, verbs in document["paths"].items():
        for verb, operation in verbs.items():
            answers = operation["responses"]
            where = f"{verb} {route}"
            assert {"401", "403", "429", "503"} <= set(answers), where
            assert operation["summary"], where
            assert all(answer["description"] for answer in answers.values()), where
            assert all(list(answer["content"]) == ["application/json"] for answer in answers.values()), where
            assert all(parameter["description"] for parameter in operation.get("parameters", ())), where
            assert ("{" in route) <= ("404" in answers), where
            if "requestBody" in operation:
                assert list(operation["requestBody"]["content"]) == ["application/json"], where
                assert {"400", "413", "415"} <= set(answers), where
            for status in ("429", "503"):
                assert "Retry-After" in answers[status]["headers"], where


def test_names_of_ours_are_told_from_the_host_s(document: dict[str, Any]) -> None:
    assert {name for name in document["components"]["schemas"] if not name.startswith("Ductor")} == set()
    assert {verb["operationId"][:7] for verbs in document["paths"].values() for verb in verbs.values()} == {"ductor_"}


def test_words_and_bounds_are_said(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    assert schemas["DuctorState"]["enum"] == [state.value for state in State]
    assert schemas["DuctorOutcome"]["enum"] == [outcome.value for outcome in Outcome]
    assert schemas["DuctorJobRequest"]["additionalProperties"] is False
    for name, field in (("DuctorBulkRequest", "jobs"), ("DuctorIds", "ids")):
        bounded = schemas[name]["properties"][field]
        assert (bounded["minItems"], bounded["maxItems"]) == (1, BULK_MAX)
    assert set(schemas["DuctorJob"]["properties"]) == set(job_shapes.Job().fields)


def test_a_host_may_add_to_the_description_of_a_view() -> None:
    @extend_schema_view(get=extend_schema(tags=["ours"]))
    class Ours(JobView):
        pass

    made = SchemaGenerator(patterns=[path("job/<str:job_id>/", Ours.as_view())]).get_schema(public=True)
    operation = made["paths"]["/job/{job_id}/"]["get"]
    assert (operation["operationId"], operation["tags"]) == ("ductor_jobs_look", ["ours"])


@pytest.mark.django_db
def test_the_example_project_serves_it_as_json_and_nothing_else(document: dict[str, Any], client: Client) -> None:
    answer = client.get("/api/schema.json", headers={"Accept": "text/html,*/*"})
    assert answer.status_code == 200
    assert answer["Content-Type"] == "application/vnd.oai.openapi+json"
    assert set(answer.json()["paths"]) == set(document["paths"])


WITHOUT = """
import sys
sys.modules["drf_spectacular"] = None
import django
from django.conf import settings
settings.configure(
    INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth", "rest_framework", "queueapp"],
    ROOT_URLCONF="queueapp.api.urls", ALLOWED_HOSTS=["testserver"], SECRET_KEY="x", USE_TZ=True,
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    REST_FRAMEWORK={"DEFAULT_AUTHENTICATION_CLASSES": [], "UNAUTHENTICATED_USER": None},
    DUCTOR={"API_TENANTS": lambda request: {"acme"}},
)
django.setup()
from django.test import Client
answer = Client().post("/jobs/", {"task": "no.such"}, content_type="application/json")
print(answer.status_code, answer.content.decode())
print(any(name.startswith("drf_spectacular.") for name in sys.modules))
"""


def test_without_drf_spectacular_the_api_works() -> None:
    """And in a host without sessions and without users of Django's."""
    done = subprocess.run([sys.executable, "-c", WITHOUT], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    answer, imported = done.stdout.splitlines()
    assert answer == '400 {"task":["No task of this name can be started here."]}'
    assert imported == "False"

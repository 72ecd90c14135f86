"""The API over HTTP: opened by a host for the tenants that a header names."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.contrib.auth.models import Permission, User
from django.test import Client, override_settings

from tests.unit.api.host import of_header


@pytest.fixture
def opened(redis_url: str) -> Iterator[None]:
    """The API as a host opens it, over the tests' server."""
    with override_settings(DUCTOR={**django_settings.DUCTOR, "API_TENANTS": f"{of_header.__module__}.of_header"}):
        yield


@pytest.fixture
def post(client: Client) -> Callable[..., Any]:
    def send(body: object = None, *, tenants: str = "acme", raw: bytes | None = None, **headers: str) -> Any:
        content = raw if raw is not None else json.dumps(body).encode()
        return client.post(
            "/api/jobs/", content, content_type="application/json", headers={"X-Tenants": tenants, **headers}
        )

    return send


@pytest.fixture
def get(client: Client) -> Callable[..., Any]:
    return lambda job_id, tenants="acme": client.get(f"/api/jobs/{job_id}/", headers={"X-Tenants": tenants})


@pytest.fixture
def ask(client: Client) -> Callable[..., Any]:
    """Any request: `ask("POST", "jobs/x/cancel/", tenants="acme")`; `body` goes as JSON."""

    def send(method: str, path: str, *, tenants: str = "acme", body: object = None, **headers: str) -> Any:
        return client.generic(
            method,
            path if path.startswith(("/", "http")) else f"/api/{path}",
            json.dumps(body).encode() if body is not None else b"",
            content_type="application/json",
            headers={"X-Tenants": tenants, **headers},
        )

    return send


@pytest.fixture
def signed_in(client: Client) -> Callable[..., User]:
    """Signs in a new user who has these permissions of ours."""

    def sign_in(*permissions: str) -> User:
        user = User.objects.create_user(f"user{User.objects.count()}")
        user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
        client.force_login(user)
        return user

    return sign_in

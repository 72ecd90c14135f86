"""Settings of the example project. Everything that differs between machines comes from the environment, and only here.

| variable | meaning | default |
|---|---|---|
| DEBUG | 1 or 0 | 1: this project is for trying things out |
| SECRET_KEY | required with DEBUG=0 | with DEBUG a random one, kept in .ductor |
| ALLOWED_HOSTS | separated by commas | this machine |
| DATABASE_URL | postgres://user:password@host:port/name or sqlite:///path | SQLite in .ductor |
| REDIS_URL | redis://, rediss:// or unix:// | the embedded server of `manage.py stack` |
| DUCTOR_NAMESPACE | prefix of every key in the store | ductor |
"""

from __future__ import annotations

import importlib.util
import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import django
from django.core.exceptions import ImproperlyConfigured

BASE_DIR = Path(__file__).resolve().parent.parent
STATE_DIR = BASE_DIR / ".ductor"
"""What the project makes while it runs: database, embedded server, mails. Deleting it starts afresh."""
STATE_DIR.mkdir(exist_ok=True)

DEBUG = os.environ.get("DEBUG", "1").lower() in {"1", "true", "yes", "on"}


def _secret_key() -> str:
    if given := os.environ.get("SECRET_KEY"):
        return given
    if not DEBUG:
        raise ImproperlyConfigured("SECRET_KEY is not set in the environment; with DEBUG=0 it must be.")
    kept, fresh = STATE_DIR / "secret_key", STATE_DIR / f"secret_key.{os.getpid()}"
    if not kept.exists():
        # Written aside and linked, so that processes that start together agree on one whole key.
        fresh.touch(0o600)
        fresh.write_text(secrets.token_urlsafe(50))
        with suppress(FileExistsError):
            os.link(fresh, kept)
        fresh.unlink()
    return kept.read_text()


SECRET_KEY = _secret_key()
ALLOWED_HOSTS = [host for host in os.environ.get("ALLOWED_HOSTS", "localhost,127.0.0.1,[::1]").split(",") if host]

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "rest_framework",
    "queueapp",
    "ductor_project.demo",
]
if django.VERSION < (6, 0) and importlib.util.find_spec("django_tasks"):
    INSTALLED_APPS.append("django_tasks")

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
if django.VERSION >= (6, 0):
    from django.utils.csp import CSP

    MIDDLEWARE.insert(1, "django.middleware.csp.ContentSecurityPolicyMiddleware")
    SECURE_CSP = {
        "default-src": [CSP.SELF],
        "img-src": [CSP.SELF, "data:"],
        "frame-ancestors": [CSP.NONE],
        "base-uri": [CSP.SELF],
        "form-action": [CSP.SELF],
    }

ROOT_URLCONF = "ductor_project.urls"
WSGI_APPLICATION = "ductor_project.wsgi.application"
ASGI_APPLICATION = "ductor_project.asgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]


def _database(url: str) -> dict[str, Any]:
    parts = urlsplit(url)
    if parts.scheme == "sqlite":
        return {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": unquote(parts.path[1:]),
            "OPTIONS": {
                # Readers beside one writer; and a writer that asks for its lock at the start waits for it, where one
                # that asks in the middle of its transaction fails at once with "database is locked".
                "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
                "transaction_mode": "IMMEDIATE",
                "timeout": 20,
            },
        }
    if parts.scheme in {"postgres", "postgresql"}:
        return {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": unquote(parts.path[1:]),
            "USER": unquote(parts.username or ""),
            "PASSWORD": unquote(parts.password or ""),
            "HOST": parts.hostname or "",
            "PORT": str(parts.port or ""),
            "CONN_MAX_AGE": 60,
        }
    raise ImproperlyConfigured("DATABASE_URL begins with neither postgres:// nor sqlite:///.")


DATABASES = {"default": _database(os.environ.get("DATABASE_URL") or f"sqlite:///{STATE_DIR / 'db.sqlite3'}")}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}

MAIL_DIR = STATE_DIR / "mails"
"""Mails are written here, one file each."""
if django.VERSION >= (6, 1):
    MAILERS = {
        "default": {
            "BACKEND": "django.core.mail.backends.filebased.EmailBackend",
            "OPTIONS": {"file_path": str(MAIL_DIR)},
        }
    }
else:
    EMAIL_BACKEND = "django.core.mail.backends.filebased.EmailBackend"
    EMAIL_FILE_PATH = str(MAIL_DIR)

TASKS = {"default": {"BACKEND": "queueapp.backend.DuctorBackend"}}

DUCTOR: dict[str, Any] = {
    "REDIS_URL": os.environ.get("REDIS_URL") or None,
    "NAMESPACE": os.environ.get("DUCTOR_NAMESPACE", "ductor"),
}

LANGUAGE_CODE = "en-us"
TIME_ZONE = "UTC"
USE_I18N = True
USE_TZ = True

STATIC_URL = "static/"
STATIC_ROOT = STATE_DIR / "static"
STATICFILES_DIRS = [BASE_DIR / "static"]

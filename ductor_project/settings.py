"""Settings of the example project. Everything that differs between machines comes from the environment, and only here.

| variable | meaning | default |
|---|---|---|
| DEBUG | 1 or 0 | 1: this project is for trying things out |
| SECRET_KEY | required with DEBUG=0 | with DEBUG a random one, kept in STATE_DIR |
| ALLOWED_HOSTS | names that the site answers to, separated by commas | this machine |
| CSRF_TRUSTED_ORIGINS | origins such as https://queue.example.com, separated by commas | none |
| HTTPS | 1: cookies and redirects for HTTPS only | 0 with DEBUG, else 1 |
| HSTS_SECONDS | how long browsers insist on HTTPS, with HTTPS=1 | 3600 |
| BEHIND_PROXY | 1: a proxy in front sets X-Forwarded-Proto, and drops what clients say there | 0 |
| DATABASE_URL | postgres://user:password@host:port/name, postgres:///name?host=/socket, sqlite:///path | SQLite |
| REDIS_URL | redis://, rediss:// or unix:// | the embedded server of `manage.py stack` |
| DUCTOR_NAMESPACE | prefix of every key in the store | ductor |
| EMAIL_URL | smtp://user:password@host:587 (STARTTLS), smtps:// (TLS), smtp+plain:// (neither) | mails become files |
| STATE_DIR | what the project makes while it runs: database, mails, static files | .ductor |
| STATIC_ROOT | `collectstatic` puts files there; whitenoise, when installed, serves them | static in STATE_DIR |
| TIME_ZONE | of the pages | UTC |
| LOG_LEVEL | with DEBUG=0: of everything that is logged to stderr | INFO |
| LOG_FORM | with DEBUG=0: text or json, one line per event | text |
"""

from __future__ import annotations

import importlib.util
import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import django
from django.core.exceptions import ImproperlyConfigured

FLAGS = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}


def _flag(name: str, *, default: bool) -> bool:
    text = os.environ.get(name) or str(int(default))
    if text.lower() not in FLAGS:
        raise ImproperlyConfigured(f"{name} is {text!r} in the environment; it must be 1 or 0.")
    return FLAGS[text.lower()]


def _list(name: str, default: str = "") -> list[str]:
    return [entry.strip() for entry in os.environ.get(name, default).split(",") if entry.strip()]


def _number(name: str, *, default: int) -> int:
    text = os.environ.get(name) or str(default)
    if not text.isdecimal():
        raise ImproperlyConfigured(f"{name} is {text!r} in the environment; it must be a whole number.")
    return int(text)


BASE_DIR = Path(__file__).resolve().parent.parent
STATE_DIR = Path(os.environ.get("STATE_DIR") or BASE_DIR / ".ductor")
"""What the project makes while it runs; the embedded server keeps its data in .ductor. Deleting both starts afresh."""
STATE_DIR.mkdir(exist_ok=True)

DEBUG = _flag("DEBUG", default=True)


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
ALLOWED_HOSTS = _list("ALLOWED_HOSTS", "localhost,127.0.0.1,[::1]")
CSRF_TRUSTED_ORIGINS = _list("CSRF_TRUSTED_ORIGINS")

HTTPS = _flag("HTTPS", default=not DEBUG)
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = SECURE_SSL_REDIRECT = HTTPS
SECURE_HSTS_SECONDS = _number("HSTS_SECONDS", default=3600) if HTTPS else 0
# Probes come from inside, without a proxy in between.
SECURE_REDIRECT_EXEMPT = [r"^ductor/(healthz|readyz)$"]
if _flag("BEHIND_PROXY", default=False):
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "rest_framework",
    "drf_spectacular",
    "queueapp",
    "flows",
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
        options = dict(parse_qsl(parts.query))
        return {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": unquote(parts.path[1:]),
            "USER": unquote(parts.username or ""),
            "PASSWORD": unquote(parts.password or ""),
            # A directory as ?host= is that of a unix socket.
            "HOST": options.pop("host", "") or parts.hostname or "",
            "PORT": options.pop("port", "") or str(parts.port or ""),
            "OPTIONS": options,
            "CONN_MAX_AGE": 60,
            "CONN_HEALTH_CHECKS": True,
        }
    raise ImproperlyConfigured("DATABASE_URL begins with neither postgres:// nor sqlite:///.")


DATABASES = {"default": _database(os.environ.get("DATABASE_URL") or f"sqlite:///{STATE_DIR / 'db.sqlite3'}")}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}

MAIL_DIR = STATE_DIR / "mails"
"""Without EMAIL_URL mails are written here, one file each."""


def _mailer(url: str) -> tuple[str, dict[str, Any]]:
    """The backend of django.core.mail and its options, as Django 6.1 names them."""
    if not url:
        return "filebased", {"file_path": str(MAIL_DIR)}
    parts = urlsplit(url)
    if parts.scheme not in {"smtp", "smtps", "smtp+plain"}:
        raise ImproperlyConfigured("EMAIL_URL begins with none of smtp://, smtps:// and smtp+plain://.")
    return "smtp", {
        "host": parts.hostname or "localhost",
        "port": parts.port or {"smtp": 587, "smtps": 465}.get(parts.scheme, 25),
        "username": unquote(parts.username or ""),
        "password": unquote(parts.password or ""),
        "use_tls": parts.scheme == "smtp",
        "use_ssl": parts.scheme == "smtps",
        "timeout": 20,
    }


_backend, _options = _mailer(os.environ.get("EMAIL_URL", ""))
if django.VERSION >= (6, 1):
    MAILERS = {"default": {"BACKEND": f"django.core.mail.backends.{_backend}.EmailBackend", "OPTIONS": _options}}
else:
    EMAIL_BACKEND = f"django.core.mail.backends.{_backend}.EmailBackend"
    _names = {"username": "EMAIL_HOST_USER", "password": "EMAIL_HOST_PASSWORD"}
    globals().update({_names.get(name, f"EMAIL_{name.upper()}"): value for name, value in _options.items()})

TASKS = {"default": {"BACKEND": "queueapp.backend.DuctorBackend"}}

DUCTOR: dict[str, Any] = {
    "REDIS_URL": os.environ.get("REDIS_URL") or None,
    "NAMESPACE": os.environ.get("DUCTOR_NAMESPACE") or "ductor",
}

REST_FRAMEWORK = {"DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema"}
SPECTACULAR_SETTINGS = {"TITLE": "Ductor", "VERSION": "1", "SERVE_INCLUDE_SCHEMA": False}

LANGUAGE_CODE = "en-us"
TIME_ZONE = os.environ.get("TIME_ZONE") or "UTC"
USE_I18N = True
USE_TZ = True

STATIC_URL = "static/"
STATIC_ROOT = Path(os.environ.get("STATIC_ROOT") or STATE_DIR / "static")
STATICFILES_DIRS = [BASE_DIR / "static"]
if not DEBUG and importlib.util.find_spec("whitenoise"):
    # Without it a server in front has to serve STATIC_ROOT.
    MIDDLEWARE.insert(1, "whitenoise.middleware.WhiteNoiseMiddleware")

if not DEBUG:
    # To stderr, one line per event. With DEBUG that is left to runserver, and to worker and scheduler (`--log`).
    _form = {"text": "TextLine", "json": "JsonLine"}.get(os.environ.get("LOG_FORM") or "text")
    if _form is None:
        raise ImproperlyConfigured(
            f"LOG_FORM is {os.environ['LOG_FORM']!r} in the environment; it must be text or json."
        )
    LOGGING = {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"line": {"()": f"queueapp.cli.logs.{_form}"}},
        "handlers": {
            "stderr": {"class": "logging.StreamHandler", "formatter": "line"},
            "refused": {"class": "logging.NullHandler"},
        },
        "root": {"handlers": ["stderr"], "level": (os.environ.get("LOG_LEVEL") or "INFO").upper()},
        "loggers": {
            "django": {"handlers": [], "propagate": True},
            # Whoever tries names gets a 400, which the access log shows; no traceback for each.
            "django.security.DisallowedHost": {"handlers": ["refused"], "propagate": False},
        },
    }

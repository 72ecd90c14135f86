"""The example project's settings: everything from the environment, documented, safe with DEBUG=0."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from queueapp.bench import ground

ROOT = Path(__file__).resolve().parents[3]
SOURCE = (ROOT / "ductor_project/settings.py").read_text()
VARIABLES = set(re.findall(r"^\| ([A-Z_]+) \|", SOURCE, re.MULTILINE))
PRODUCTION = {"DEBUG": "0", "SECRET_KEY": "a" * 25 + "0123456789" * 3, "REDIS_URL": "redis://store:6379/0"}

SHOW = """
import json, sys
from ductor_project import settings
print(json.dumps({name: getattr(settings, name, None) for name in sys.argv[1:]}, default=str))
"""


def run(command: list[str], tmp_path: Path, variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if name not in VARIABLES | {"DJANGO_SETTINGS_MODULE"}}
    environment = {**kept, "STATE_DIR": str(tmp_path), **variables}
    return subprocess.run(
        [sys.executable, *command], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60
    )


def settings(tmp_path: Path, *names: str, **variables: str) -> dict[str, Any]:
    """These settings, as a process with these variables has them."""
    done = run(["-c", SHOW, *names], tmp_path, variables)
    assert done.returncode == 0, done.stderr
    shown: dict[str, Any] = json.loads(done.stdout)
    return shown


def refused(tmp_path: Path, **variables: str) -> str:
    """The last line of a process whose settings refuse these variables."""
    done = run(["-c", SHOW], tmp_path, variables)
    assert done.returncode != 0
    return done.stderr.strip().splitlines()[-1]


def test_every_variable_that_is_read_is_documented_and_the_other_way_round() -> None:
    read = set()
    for node in ast.walk(ast.parse(SOURCE)):
        if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = ast.unparse(node.func)
            if called in {"os.environ.get", "_flag", "_list", "_number"}:
                read.add(node.args[0].value)
    assert read == VARIABLES


def test_the_grounds_of_benchmarks_and_tests_are_deaf_to_all_of_them() -> None:
    assert ground.OURS == VARIABLES


def test_with_debug_nothing_has_to_be_set(tmp_path: Path) -> None:
    found = settings(tmp_path, "DEBUG", "SECRET_KEY", "SECURE_SSL_REDIRECT", "LOGGING", "ALLOWED_HOSTS")
    assert found["DEBUG"] is True
    assert found["SECRET_KEY"] == (tmp_path / "secret_key").read_text()
    assert found["SECURE_SSL_REDIRECT"] is False
    assert found["LOGGING"] is None
    assert "localhost" in found["ALLOWED_HOSTS"]


def test_without_debug_the_checks_of_a_deploy_find_nothing_that_we_do_not_mean(tmp_path: Path) -> None:
    # Mails that become files are a fault of a deploy from Django 6.1 on.
    variables = {**PRODUCTION, "EMAIL_URL": "smtp://mail.example"}
    done = run(["manage.py", "check", "--deploy", "--fail-level", "WARNING"], tmp_path, variables)
    # HSTS for subdomains and preloading is for the owner of the domain to say.
    assert set(re.findall(r"\(([a-z_]+\.[EW]\d+)\)", done.stderr)) == {"security.W005", "security.W021"}


def test_without_debug_cookies_and_pages_are_for_https(tmp_path: Path) -> None:
    names = ("SESSION_COOKIE_SECURE", "CSRF_COOKIE_SECURE", "SECURE_SSL_REDIRECT", "SECURE_HSTS_SECONDS")
    assert list(settings(tmp_path, *names, **PRODUCTION).values()) == [True, True, True, 3600]
    assert list(settings(tmp_path, *names, **PRODUCTION, HTTPS="0").values()) == [False, False, False, 0]


def test_a_proxy_is_trusted_only_when_it_is_said_to_be_there(tmp_path: Path) -> None:
    name = "SECURE_PROXY_SSL_HEADER"
    assert settings(tmp_path, name, **PRODUCTION) == {name: None}
    assert settings(tmp_path, name, **PRODUCTION, BEHIND_PROXY="1") == {name: ["HTTP_X_FORWARDED_PROTO", "https"]}


def test_lists(tmp_path: Path) -> None:
    found = settings(
        tmp_path,
        "ALLOWED_HOSTS",
        "CSRF_TRUSTED_ORIGINS",
        **PRODUCTION,
        ALLOWED_HOSTS="a.example, b.example,",
        CSRF_TRUSTED_ORIGINS="https://a.example",
    )
    assert found == {"ALLOWED_HOSTS": ["a.example", "b.example"], "CSRF_TRUSTED_ORIGINS": ["https://a.example"]}


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgres://u:p%40x@db.example:5433/ductor", ("ductor", "u", "p@x", "db.example", "5433", {})),
        ("postgresql:///ductor?host=/run/postgresql", ("ductor", "", "", "/run/postgresql", "", {})),
        ("postgres:///t?host=/tmp/a%20b&port=5999&user=x", ("t", "", "", "/tmp/a b", "5999", {"user": "x"})),
        ("postgres://u@db/ductor?sslmode=require", ("ductor", "u", "", "db", "", {"sslmode": "require"})),
    ],
)
def test_addresses_of_postgresql(tmp_path: Path, url: str, expected: tuple[object, ...]) -> None:
    database = settings(tmp_path, "DATABASES", DATABASE_URL=url)["DATABASES"]["default"]
    assert database["ENGINE"] == "django.db.backends.postgresql"
    assert tuple(database[name] for name in ("NAME", "USER", "PASSWORD", "HOST", "PORT", "OPTIONS")) == expected


def test_state_and_static_files_stand_where_they_are_told_to(tmp_path: Path) -> None:
    names = ("STATE_DIR", "STATIC_ROOT", "MAIL_DIR")
    assert list(settings(tmp_path, *names).values()) == [str(tmp_path), f"{tmp_path}/static", f"{tmp_path}/mails"]
    assert settings(tmp_path, "STATIC_ROOT", STATIC_ROOT="/srv/static") == {"STATIC_ROOT": "/srv/static"}


@pytest.mark.compat
@pytest.mark.parametrize(
    ("url", "port", "tls", "ssl"),
    [
        ("smtp://u:p%2Fw@mail.example", 587, True, False),
        ("smtps://u:p%2Fw@mail.example", 465, False, True),
        ("smtp+plain://u:p%2Fw@mail.example:2525", 2525, False, False),
    ],
)
def test_mails_go_where_the_address_says(tmp_path: Path, url: str, port: int, tls: bool, ssl: bool) -> None:
    code = (
        "import django; django.setup()\n"
        "from django.core import mail\n"
        "sent = mail.mailers.default if django.VERSION >= (6, 1) else mail.get_connection()\n"
        "print([sent.host, sent.port, sent.username, sent.password, sent.use_tls, sent.use_ssl])\n"
    )
    done = run(["-c", code], tmp_path, {"DJANGO_SETTINGS_MODULE": "ductor_project.settings", "EMAIL_URL": url})
    assert done.returncode == 0, done.stderr
    assert ast.literal_eval(done.stdout) == ["mail.example", port, "u", "p/w", tls, ssl]


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"DEBUG": "maybe"}, "DEBUG is 'maybe' in the environment; it must be 1 or 0."),
        ({**PRODUCTION, "HSTS_SECONDS": "a year"}, "HSTS_SECONDS is 'a year'"),
        ({"DEBUG": "0"}, "SECRET_KEY is not set in the environment"),
        ({"DATABASE_URL": "mysql://u:hunter2@db/x"}, "DATABASE_URL begins with neither"),
        ({"EMAIL_URL": "imap://u:hunter2@mail"}, "EMAIL_URL begins with none of"),
        ({**PRODUCTION, "LOG_FORM": "xml"}, "LOG_FORM is 'xml'"),
    ],
)
def test_what_cannot_be_is_refused_by_name_without_secrets(
    tmp_path: Path, variables: dict[str, str], said: str
) -> None:
    line = refused(tmp_path, **variables)
    assert said in line
    assert "hunter2" not in line


@pytest.mark.parametrize("form", ["text", "json"])
def test_without_debug_everything_is_logged_one_line_per_event(tmp_path: Path, form: str) -> None:
    code = (
        "import django, logging; django.setup()\n"
        "logging.getLogger('queueapp.x').warning('one %s', 1, extra={'pool': 'mail'})\n"
        "logging.getLogger('django.request').error('two')\n"
        "logging.getLogger('queueapp.x').debug('too fine')\n"
    )
    variables = {**PRODUCTION, "DJANGO_SETTINGS_MODULE": "ductor_project.settings", "LOG_FORM": form}
    done = run(["-W", "ignore", "-c", code], tmp_path, variables)
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 2, done.stderr
    if form == "json":
        assert [json.loads(line)["message"] for line in lines] == ["one 1", "two"]
        assert json.loads(lines[0])["pool"] == "mail"
    else:
        assert lines[0].endswith("WARNING x: one 1 pool=mail")

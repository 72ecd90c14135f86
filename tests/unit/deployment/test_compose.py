"""`docker-compose.yml`, checked without an engine: its shape, its commands, its variables, its probes, its secrets."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from django.core.management import load_command_class

from queueapp.conf import Settings
from tests.unit.deployment import compose
from tests.unit.deployment.test_settings import VARIABLES

ROOT = compose.ROOT
OUTSIDE = {"WEB_CONCURRENCY", "PROMETHEUS_MULTIPROC_DIR"}
"""Read by gunicorn and prometheus_client."""


@pytest.fixture(scope="module")
def services() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = compose.interpolated(compose.filled())["services"]
    return found


def ours(services: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The services that run our image."""
    return {name: service for name, service in services.items() if service["image"] == "ductor:latest"}


def manage_commands(services: dict[str, dict[str, Any]]) -> list[list[str]]:
    """Every `manage.py` call of the file, commands and probes."""
    calls = [service.get("command", []) for service in ours(services).values()]
    calls += [service.get("healthcheck", {}).get("test", [])[1:] for service in ours(services).values()]
    return [call[2:] for call in calls if call[:2] == ["python", "manage.py"]]


def seconds(duration: str) -> int:
    units = {"h": 3600, "m": 60, "s": 1}
    return sum(int(number) * units[unit] for number, unit in re.findall(r"(\d+)([hms])", duration))


def test_it_has_the_shape_of_a_compose_file() -> None:
    jsonschema.Draft202012Validator(compose.SCHEMA).validate(compose.interpolated(compose.filled()))


def test_the_schema_refuses_what_compose_would_pass_over() -> None:
    loaded = compose.interpolated(compose.filled())
    loaded["services"]["web"]["heathcheck"] = {}
    with pytest.raises(jsonschema.ValidationError, match="heathcheck"):
        jsonschema.Draft202012Validator(compose.SCHEMA).validate(loaded)


def test_it_is_what_was_promised(services: dict[str, dict[str, Any]]) -> None:
    replicas = {name: service.get("deploy", {}).get("replicas", 1) for name, service in services.items()}
    assert (replicas["web"], replicas["scheduler"], replicas["worker"]) == (1, 2, 2)
    assert {"store", "database", "prometheus", "migrate", "upgrade"} <= services.keys()
    store = services["store"]["command"]
    for option, value in (("--appendonly", "yes"), ("--maxmemory-policy", "noeviction")):
        assert store[store.index(option) + 1] == value


def test_without_its_secrets_nothing_starts() -> None:
    for name in compose.SECRETS:
        with pytest.raises(ValueError, match=name):
            compose.interpolated({**compose.filled(), name: ""})
    empty = {name for name, value in compose.example().items() if not value}
    assert empty >= set(compose.SECRETS), "the repository holds none"
    assert "/.env" in (ROOT / ".gitignore").read_text().split()


def test_every_variable_stands_in_the_example_file_and_no_other() -> None:
    named = {name for name, _, _ in compose.VARIABLE.findall(compose.text())}
    assert named == compose.example().keys()


def test_secrets_reach_only_where_they_are_needed(services: dict[str, dict[str, Any]]) -> None:
    for secret in compose.SECRETS:
        value = compose.filled()[secret]
        holders = {name for name, service in services.items() if value in str(service)}
        beside = {"DATABASE_PASSWORD": {"database"}, "STORE_PASSWORD": {"store"}}.get(secret, set())
        assert holders == ours(services).keys() | beside


def test_our_processes_get_variables_that_the_settings_read(services: dict[str, dict[str, Any]]) -> None:
    for name, service in ours(services).items():
        assert service["environment"].keys() <= VARIABLES | OUTSIDE, name
        assert service["environment"]["DEBUG"] == "0"


def test_every_manage_command_exists_and_takes_its_options(services: dict[str, dict[str, Any]]) -> None:
    calls = manage_commands(services)
    assert {call[0] for call in calls} == {"migrate", "ductor", "scheduler", "worker"}
    for name, *arguments in calls:
        app = "django.core" if name == "migrate" else "queueapp"
        load_command_class(app, name).create_parser("manage.py", name).parse_args(arguments)


def test_worker_and_scheduler_are_probed_by_their_own_check(services: dict[str, dict[str, Any]]) -> None:
    for role in ("worker", "scheduler"):
        assert services[role]["healthcheck"]["test"][1:] == ["python", "manage.py", role, "--check"]


def test_the_probe_of_the_site_asks_for_an_address_that_it_has(services: dict[str, dict[str, Any]]) -> None:
    from django.urls import resolve

    probe = services["web"]["healthcheck"]["test"][-1]
    host, port, path = re.search(r"http://([\d.]+):(\d+)(/[a-z/]+)", probe).groups()  # type: ignore[union-attr]  # None would fail the test
    assert resolve(path).view_name == "ductor_monitoring:readyz"
    assert host in services["web"]["environment"]["ALLOWED_HOSTS"].split(",")
    assert f"0.0.0.0:{port}" in compose.image_command()
    assert services["web"]["ports"][0].endswith(f":{port}")


def test_what_depends_on_something_waits_until_it_is_fit(services: dict[str, dict[str, Any]]) -> None:
    for name, service in services.items():
        for needed, how in service.get("depends_on", {}).items():
            assert needed in services, name
            once = services[needed]["restart"] == "no"
            assert how["condition"] == ("service_completed_successfully" if once else "service_healthy")
            assert once or "healthcheck" in services[needed]
    for role in ("web", "scheduler", "worker"):
        assert services[role]["depends_on"].keys() == {"upgrade", "database", "store"}
    assert "migrate" in services["upgrade"]["depends_on"], "tables first, then the store"


def test_containers_are_given_the_time_that_our_processes_take_to_stop(services: dict[str, dict[str, Any]]) -> None:
    assert seconds(services["worker"]["stop_grace_period"]) > Settings().grace_ms / 1000 + 5
    assert seconds(services["web"]["stop_grace_period"]) > 30, "gunicorn's own graceful_timeout"


def test_volumes_are_declared_and_files_are_there(services: dict[str, dict[str, Any]]) -> None:
    declared = compose.interpolated(compose.filled())["volumes"].keys()
    used = [volume.split(":")[0] for service in services.values() for volume in service.get("volumes", [])]
    assert {name for name in used if not name.startswith(".")} == set(declared)
    for name in used:
        assert not name.startswith(".") or (ROOT / name).is_file(), name


def test_addresses_name_services_and_their_ports(services: dict[str, dict[str, Any]]) -> None:
    environment = services["web"]["environment"]
    for variable, service, port in (("DATABASE_URL", "database", "5432"), ("REDIS_URL", "store", "6379")):
        assert f"@{service}:{port}/" in environment[variable]
        assert service in services


def test_prometheus_asks_every_replica_on_the_port_that_it_serves(services: dict[str, dict[str, Any]]) -> None:
    config = yaml.safe_load((ROOT / "tools/prometheus.yml").read_text())
    asked: dict[str, int] = {}
    for job in config["scrape_configs"]:
        for found in job.get("dns_sd_configs", []):
            assert found["type"] == "A"
            asked |= dict.fromkeys(found["names"], found["port"])
    assert asked.keys() == {"scheduler", "worker"}
    for role, port in asked.items():
        command = services[role]["command"]
        assert command[command.index("--metrics-addr") + 1] == f"0.0.0.0:{port}"
    mounted = {Path(volume.split(":")[1]) for volume in services["prometheus"]["volumes"]}
    for rules in config["rule_files"]:
        assert Path("/etc/prometheus") / rules in mounted

"""What the process of a scheduler does before it begins."""

from __future__ import annotations

import pytest
import redis

from queueapp import extensions
from queueapp.cli import scheduler, startup
from queueapp.store import connection


class Claimed(Exception):
    """It has come as far as that."""


def test_functions_of_other_releases_go_when_a_scheduler_starts(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server keeps them for ever otherwise; and after the server was looked at, which may refuse us."""
    name, looked = "ductor_cancel_000000000000", []
    redis_client.function_load(
        f"#!lua name={name}\nredis.register_function('{name}', function() return 1 end)", replace=True
    )

    def claims() -> str:
        raise Claimed

    for step in ("on_stop_signals", "wait_for_migrations"):
        monkeypatch.setattr(startup, step, lambda *_: None)
    monkeypatch.setattr(startup, "look_at_server", lambda: looked.append(functions()))
    monkeypatch.setattr(startup, "claim_namespace", claims)
    monkeypatch.setattr(scheduler, "listen", lambda *_: None)
    monkeypatch.setattr(connection, "commands", lambda: redis_client)

    def functions() -> set[str]:
        listed = redis_client.execute_command("FUNCTION", "LIST")
        return {entry[1].decode() for entry in listed}

    with pytest.raises(Claimed):
        scheduler.run_scheduler("s")
    assert name in looked[0]
    assert name not in functions()


class Rests:
    def run(self) -> float:
        return 60.0


def test_it_does_what_packages_have_put_beside_its_own_duties(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extensions, "duties", {"spy": Rests})
    made = scheduler.make_scheduler("s", "installation")
    assert "database Rests" in [appointment.name for appointment in made._appointments]

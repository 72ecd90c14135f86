"""Every way in which a store can fail gives one clear error: the right class, the remedy, and no password."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import redis
from pytest_django import Settings

from queueapp.errors import StoreError, StoreMisconfigured, StoreUnavailable
from queueapp.store import connection, embedded, faults

OwnServer = Callable[..., embedded.EmbeddedServer]
PASSWORD = "geheim-42"


def fault_of(settings: Settings, url: str, *command: str) -> StoreError:
    """What `commands()` raises for one command at the URL."""
    settings.DUCTOR = {"NAMESPACE": "test", "REDIS_URL": url}
    with pytest.raises(StoreError) as caught, connection.translate_errors():
        connection.commands().execute_command(*(command or ("SET", "key", "value")))
    assert PASSWORD not in str(caught.value)
    assert "The store at " in str(caught.value)
    return caught.value


def with_password(server: embedded.EmbeddedServer, password: str, user: str = "") -> str:
    return server.url.replace("unix://", f"unix://{user}:{password}@")


@pytest.mark.compat
def test_wrong_password(settings: Settings, own_server: OwnServer) -> None:
    server = own_server_with_password(own_server)
    fault = fault_of(settings, with_password(server, PASSWORD + "x"))
    assert isinstance(fault, StoreMisconfigured)
    assert "refuses the user name or password" in str(fault)


@pytest.mark.compat
def test_no_password(settings: Settings, own_server: OwnServer) -> None:
    fault = fault_of(settings, own_server_with_password(own_server).url)
    assert isinstance(fault, StoreMisconfigured)
    assert "wants a password" in str(fault)


def own_server_with_password(own_server: OwnServer) -> embedded.EmbeddedServer:
    # Given at run time: a server that wants one from the start could not say that it is up.
    server = own_server()
    with redis.Redis.from_url(server.url) as client:
        client.config_set("requirepass", PASSWORD)
    return server


@pytest.mark.compat
def test_missing_right(settings: Settings, own_server: OwnServer) -> None:
    server = own_server()
    with redis.Redis.from_url(server.url) as client:
        client.acl_setuser("app", enabled=True, passwords=[f"+{PASSWORD}"], commands=["+get"], keys=["*"])
    fault = fault_of(settings, with_password(server, PASSWORD, "app"))
    assert isinstance(fault, StoreMisconfigured)
    assert "Widen the user's ACL" in str(fault)
    assert "set" in str(fault).lower()


@pytest.mark.compat
def test_read_only_replica(settings: Settings, own_server: OwnServer) -> None:
    server = own_server("--replicaof", "127.0.0.1", "1")
    fault = fault_of(settings, server.url)
    assert isinstance(fault, StoreMisconfigured)
    assert "read-only replica" in str(fault)


def test_replica_without_its_master(settings: Settings, own_server: OwnServer) -> None:
    server = own_server("--replicaof", "127.0.0.1", "1", "--replica-serve-stale-data", "no")
    fault = fault_of(settings, server.url, "GET", "key")
    assert isinstance(fault, StoreUnavailable)
    assert "lost its master" in str(fault)


@pytest.mark.compat
@pytest.mark.parametrize(
    "command", [("SET", "key", "value"), ("EVAL", "#!lua\nreturn redis.call('SET', KEYS[1], 'v')", "1", "key")]
)
def test_maxmemory(settings: Settings, own_server: OwnServer, command: tuple[str, ...]) -> None:
    server = own_server("--maxmemory", "100kb")
    fault = fault_of(settings, server.url, *command)
    assert isinstance(fault, StoreMisconfigured)
    assert "`maxmemory` reached" in str(fault)
    assert "nothing was changed" in str(fault)


@pytest.mark.compat
def test_too_few_replicas(settings: Settings, own_server: OwnServer) -> None:
    server = own_server("--min-replicas-to-write", "1")
    fault = fault_of(settings, server.url)
    assert isinstance(fault, StoreUnavailable)
    assert "min-replicas-to-write" in str(fault)


@pytest.mark.compat
def test_missing_command_and_database(settings: Settings, own_server: OwnServer) -> None:
    server = own_server()
    fault = fault_of(settings, server.url, "NOSUCHCOMMAND")
    assert isinstance(fault, StoreMisconfigured)
    assert "lacks a command" in str(fault)
    fault = fault_of(settings, server.url.replace("db=0", "db=9999"))
    assert isinstance(fault, StoreMisconfigured)
    assert "no database of this number" in str(fault)


def test_refused_tcp_and_missing_socket(settings: Settings) -> None:
    fault = fault_of(settings, f"redis://:{PASSWORD}@127.0.0.1:1/0")
    assert isinstance(fault, StoreUnavailable)
    assert "127.0.0.1:1/0 cannot be reached" in str(fault)
    fault = fault_of(settings, "unix:///nonexistent/valkey.sock")
    assert isinstance(fault, StoreUnavailable)
    assert "unix:/nonexistent/valkey.sock cannot be reached" in str(fault)


# -- a server that says one thing only ---------------------------------------------------------------------------------


@pytest.fixture
def says(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[bytes], str]]:
    """`says(line)` starts a server that answers each command with `line` (nothing: never), and returns its URL."""
    listeners: list[socket.socket] = []
    threads: list[threading.Thread] = []

    def serve(listener: socket.socket, line: bytes) -> None:
        while True:
            try:
                peer, _ = listener.accept()
            except OSError:
                return
            with peer, suppress(ConnectionError):
                while request := peer.recv(65536):
                    if line:
                        peer.sendall(line * request.count(b"*"))

    def start(line: bytes) -> str:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)
        threads.append(threading.Thread(target=serve, args=(listener, line), daemon=True))
        threads[-1].start()
        return f"redis://127.0.0.1:{listener.getsockname()[1]}/0"

    yield start
    connection.reset()
    for listener in listeners:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
    for thread in threads:
        thread.join(5)


@pytest.mark.compat
@pytest.mark.parametrize(
    ("line", "kind", "words"),
    [
        (b"-LOADING Redis is loading the dataset in memory\r\n", StoreUnavailable, "is loading its data"),
        (b"-MASTERDOWN Link with MASTER is down\r\n", StoreUnavailable, "lost its master"),
        (b"-BUSY Redis is busy running a script.\r\n", StoreUnavailable, "SCRIPT KILL"),
        (b"-CLUSTERDOWN Hash slot not served\r\n", StoreUnavailable, "cluster that is down"),
        (b"-ERR max number of clients reached\r\n", StoreUnavailable, "maxclients"),
        (b"-MOVED 866 127.0.0.1:7002\r\n", StoreMisconfigured, "Clusters are not supported"),
        (b"-MISCONF Errors writing to the AOF file: No space left\r\n", StoreMisconfigured, "Free its disk"),
        (b"-READONLY You can't write against a read only replica.\r\n", StoreMisconfigured, "read-only replica"),
        (b"-ERR something else\r\n", StoreError, "refused a command: something else"),
    ],
)
def test_every_refusal_of_a_server(
    settings: Settings, says: Callable[[bytes], str], line: bytes, kind: type[StoreError], words: str
) -> None:
    fault = fault_of(settings, says(line), "GET", "key")
    assert type(fault) is kind
    assert words in str(fault)


def test_a_server_that_never_answers(
    settings: Settings, says: Callable[[bytes], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "COMMAND_TIMEOUT_S", 0.2)
    fault = fault_of(settings, says(b""))
    assert isinstance(fault, StoreUnavailable)
    assert "did not answer in time" in str(fault)
    assert "sending it again is safe" in str(fault)


def test_tls_towards_a_server_without_it(settings: Settings, says: Callable[[bytes], str]) -> None:
    fault = fault_of(settings, says(b"-ERR junk\r\n").replace("redis://", "rediss://"))
    assert "127.0.0.1" in str(fault)
    # What the handshake trips over differs between TLS libraries; a lost connection says the same less exactly.
    assert isinstance(fault, StoreMisconfigured | StoreUnavailable)


def test_a_certificate_file_that_is_missing_is_named(
    settings: Settings, says: Callable[[bytes], str], tmp_path: Path
) -> None:
    url = says(b"-ERR junk\r\n").replace("redis://", "rediss://") + f"?ssl_ca_certs={tmp_path / 'ca.pem'}"
    fault = fault_of(settings, url)
    assert isinstance(fault, StoreError)


def test_certificate_that_nobody_here_trusts() -> None:
    error = redis.ConnectionError(
        "Error 1 connecting to h:1. [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed"
    )
    fault = faults.translate(error, "h:1/0")
    assert isinstance(fault, StoreMisconfigured)
    assert "ssl_ca_certs" in str(fault)


def test_errors_of_others_pass_unchanged() -> None:
    with pytest.raises(ZeroDivisionError), connection.translate_errors():
        _ = 1 / 0
    with pytest.raises(redis.DataError), connection.translate_errors():
        raise redis.DataError("a caller's mistake")

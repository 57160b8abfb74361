"""What of a PostgreSQL server stays wrong is refused at once, in words that say what to do, by a sink as by
the state; what may pass is waited for. By real servers, and never with a password in what is said."""

from __future__ import annotations

import shutil
import socket
import threading
import time
from pathlib import Path

import pytest

from tests.sinks.test_postgres import prepare_sink
from tests.support.certificates import create_certificates
from tests.support.postgres import Postgres, _hand_over
from watersmeet import postgres_server as client_module
from watersmeet.errors import EngineError, SpecError, StateError
from watersmeet.objects.postgres_location import TablesPlace
from watersmeet.objects.postgres_store import TablesStore
from watersmeet.postgres_server import advice, client, is_away
from watersmeet.spec.model import Sink
from watersmeet.spec.options.postgres import database_of, sink_problems
from watersmeet.spec.secrets import Secret, without_secrets

pytestmark = pytest.mark.postgres
COLUMNS = {"k": "BIGINT"}
AT_ONCE_S = 5.0
SECRET = "a-secret-word"


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(client_module, "RETRY_WAIT_S", 0.05)
    monkeypatch.setattr(client_module, "MAX_RETRY_WAIT_S", 0.2)


@pytest.fixture(scope="module")
def with_tls():
    """Clients show a certificate of the server's authority."""
    with Postgres(tls=True) as server:
        data = Path(server._data)
        (data / "pg_hba.conf").write_text("hostssl all all 127.0.0.1/32 scram-sha-256 clientcert=verify-ca\n")
        shutil.copy(server.authority, data / "root.crt")
        with (data / "postgresql.conf").open("a") as settings:
            settings.write("ssl_ca_file = 'root.crt'\n")
        _hand_over(data)
        server.stop()
        server.start()
        yield server


class At:
    def __init__(self, url):
        self.url = url


def with_more(url, more):
    return f"{url}{'&' if '?' in url else '?'}{more}" if more else url


def state_at(url):
    return TablesStore(TablesPlace(Secret(with_more(url, "pipeline=refused"))))


def refusals(url):
    """What a sink and a state say of it, each at once."""
    for ask in (
        lambda: prepare_sink(At(url), "refused", COLUMNS, max_wait="60 s"),
        lambda: state_at(url).check(),
    ):
        began = time.monotonic()
        with pytest.raises((EngineError, StateError, SpecError)) as raised:
            ask()
        assert time.monotonic() - began < AT_ONCE_S, raised.value
        assert SECRET not in str(raised.value)
        yield raised.value


def hosts(*ports):
    return ",".join(f"127.0.0.1:{port}" for port in ports)


@pytest.mark.parametrize(
    ("more", "said", "hint"),
    [
        ("sslmod=require", 'invalid URI query parameter: "sslmod"', 'did you mean "sslmode"'),
        ("sslmode=maybe", "invalid sslmode value", "url"),
        ("connect_timeout=soon", "invalid integer value", "url"),
        ("application_name=%zz", "a % that is not followed", ""),
        ("application_name=%00", "a % that is not followed", ""),
        ("nothing", "without '='", ""),
        ("target_session_attrs=standby", "writes", "target_session_attrs=read-write"),
        ("target_session_attrs=wrong", "target_session_attrs", "url"),
        ("sslmode=require", "does not support SSL", "ssl = on"),
        ("options=-cfoo%3D1", "unrecognized configuration parameter", "options"),
        ("require_auth=none", "authentication method requirement", "password"),
    ],
)
def test_what_the_url_says_wrongly(postgres, more, said, hint):
    for error in refusals(with_more(postgres.url, more)):
        assert said in error.message
        assert hint in (error.hint or "") or error.code == "bad-store"
        assert postgres.password not in str(error)


@pytest.mark.parametrize(
    ("old", "new", "said", "hint"),
    [
        (":{password}@", f":{SECRET}@", "password authentication failed", "PGPASSWORD"),
        (":{password}@", "@", "no password supplied", "PGPASSWORD"),
        ("watersmeet:{password}@", f"recovery:{SECRET}@", "password authentication failed", "PGPASSWORD"),
        ("watersmeet:{password}@", f"cannot_log_in:{SECRET}@", "not permitted to log in", "LOGIN"),
        ("/postgres", "/recovery", 'database "recovery" does not exist', "CREATE DATABASE"),
        ("watersmeet:{password}@", f"poor:{SECRET}@", "permission denied for database", "GRANT CONNECT"),
        (":{port}", ":{port}00", "not a PostgreSQL URL", ""),
        (":{port}", ":1,127.0.0.1:{port}", "several servers", "target_session_attrs=read-write"),
    ],
)
def test_whom_the_server_does_not_let_in(postgres, old, new, said, hint):
    """A name such as "recovery" is none of what the server says of itself."""
    if not postgres.run("SELECT 1 FROM pg_roles WHERE rolname = 'poor'"):
        postgres.run(f"CREATE ROLE poor LOGIN PASSWORD '{SECRET}'")
        postgres.run(f"CREATE ROLE cannot_log_in NOLOGIN PASSWORD '{SECRET}'")
        postgres.run("CREATE DATABASE closed")
        postgres.run("REVOKE CONNECT ON DATABASE closed FROM PUBLIC")
    told = {"password": postgres.password, "port": postgres.port}
    url = postgres.url.replace(old.format(**told), new.format(**told))
    if "poor" in new:
        url = url.replace("/postgres", "/closed")
    for error in refusals(url):
        assert said in error.message
        assert hint in (error.hint or "") or error.code == "bad-store"
        assert postgres.password not in str(error)


def test_tls_that_cannot_be(with_tls, tmp_path):
    server, other = with_tls, create_certificates(tmp_path / "other")
    other.key.chmod(0o600)
    own = f"sslrootcert={server.authority}"
    for more, said, hint in (
        (f"sslmode=verify-full&sslrootcert={other.authority}", "certificate verify failed", "sslrootcert"),
        ("sslmode=verify-full&sslrootcert=/nowhere.pem", "does not exist", "sslrootcert"),
        ("sslmode=disable", "no pg_hba.conf entry", "sslmode=require"),
        (f"sslmode=verify-full&{own}", "requires a valid client certificate", "sslcert"),
        (
            f"sslmode=verify-full&{own}&sslcert={other.certificate}&sslkey={other.key}",
            "unknown ca",
            "sslcert",
        ),
        (f"sslmode=require&sslcert={other.certificate}&sslkey=/nowhere.key", "private key file", "sslkey"),
        ("sslmode=require&ssl_max_protocol_version=TLSv1&ssl_min_protocol_version=TLSv1", "SSL error", "TLS"),
    ):
        for error in refusals(with_more(server.url, more)):
            assert said in error.message, more
            assert hint in error.hint, more
            assert server.password not in str(error)


def test_another_host_s_certificate(with_tls):
    url = with_tls.url.replace("@127.0.0.1", "@other.example")
    url += f"?sslmode=verify-full&sslrootcert={with_tls.authority}&hostaddr=127.0.0.1"
    began = time.monotonic()
    with pytest.raises(EngineError, match="does not match host name") as raised:
        prepare_sink(At(url), "refused", COLUMNS, max_wait="60 s")  # of a state no URL says hostaddr
    assert "as its certificate does" in raised.value.hint
    assert time.monotonic() - began < AT_ONCE_S


@pytest.mark.parametrize("mode", ["prefer", "require"])
def test_a_server_of_another_kind(mode):
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            while True:
                try:
                    client_end, _ = listener.accept()
                except OSError:
                    return
                client_end.recv(1 << 12)
                client_end.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                client_end.close()

        threading.Thread(target=serve, daemon=True).start()
        port = listener.getsockname()[1]
        for error in refusals(f"postgresql://me:{SECRET}@127.0.0.1:{port}/shop?sslmode={mode}"):
            assert "invalid response" in error.message
            assert "host and port" in error.hint


def test_read_only_server_is_reported_with_a_fix(postgres):
    url = f"{postgres.url}?options=-cdefault_transaction_read_only%3Don"
    for error in refusals(url):
        assert "read-only transaction" in error.message
        assert "target_session_attrs=read-write" in error.hint


def catch_client_error(url):
    with pytest.raises(client().Error) as raised:
        client().connect(url)
    return raised.value


def test_what_may_pass_is_not_refused(postgres):
    unused = socket.create_server(("127.0.0.1", 0))
    port = unused.getsockname()[1]
    unused.close()
    one = f"postgresql://me:{SECRET}@"
    assert is_away(catch_client_error(f"{one}127.0.0.1:{port}/shop"))
    assert is_away(catch_client_error(f"{one}no-such-host.invalid/shop"))
    live = postgres.url.replace(f"127.0.0.1:{postgres.port}", hosts(port, postgres.port))
    away = catch_client_error(
        f"{live}?target_session_attrs=standby"
    )  # one of those will be, behind a failover
    assert is_away(away)
    assert advice(away) is None
    assert is_away(catch_client_error(f"{live}?sslmode=require"))  # the other may have TLS
    assert not is_away(catch_client_error(f"{live.replace(postgres.password, SECRET)}"))
    postgres.run("CREATE ROLE one_at_most LOGIN PASSWORD 'a-secret-word' CONNECTION LIMIT 0")
    assert is_away(
        catch_client_error(postgres.url.replace(f"watersmeet:{postgres.password}", f"one_at_most:{SECRET}"))
    )


def test_of_several_servers_the_one_that_takes_writes_is_found(postgres):
    with socket.create_server(("127.0.0.1", 0)) as probe:
        dead = probe.getsockname()[1]
    url = postgres.url.replace(f"127.0.0.1:{postgres.port}", hosts(dead, postgres.port))
    url += "?target_session_attrs=read-write"
    sink = prepare_sink(At(url), "of_several", COLUMNS, max_wait="5 s")
    store = state_at(url)
    store.check()
    assert postgres.password not in store.place.url
    assert hosts(dead, postgres.port) in store.place.url
    assert sink.database == store.place.database
    assert sink.database != database_of(postgres.url)
    assert postgres.password not in without_secrets(url)
    wrong = url.replace(postgres.password, SECRET)
    for error in refusals(wrong):
        assert "password authentication failed" in error.message
    sink.close()


def test_a_password_that_the_client_reads_otherwise_is_refused():
    """The client looks for the "@" behind it up to the first slash, and would take another password."""
    options = {"url": "postgresql://me:12?4=@db/shop", "table": "t"}
    (problem,) = sink_problems(Sink("s", "postgres", options, None, ()))
    assert "not a PostgreSQL URL" in problem.message
    assert "12?4" not in str(problem)

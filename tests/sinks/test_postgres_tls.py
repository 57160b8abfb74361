"""A PostgreSQL server that takes connections by TLS alone: what the URL says of it holds, and nothing goes
unverified that was to be verified."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.sinks.test_postgres import prepare_sink, stage
from tests.support.certificates import create_certificates
from tests.support.postgres import Postgres
from watersmeet.errors import EngineError

pytestmark = pytest.mark.postgres

ROWS = pa.table({"k": [1, 2, 3], "v": ["a", "b", None]})
COLUMNS = {"k": "BIGINT", "v": "STRING"}


@pytest.fixture(scope="module")
def server():
    with Postgres(tls=True) as server:
        yield server


class By:
    """The server, by a URL that says more."""

    def __init__(self, server, **said):
        self.url = server.url + "?" + "&".join(f"{name}={value}" for name, value in said.items())


@pytest.mark.parametrize("mode", ["require", "verify-ca", "verify-full"])
def test_rows_go_by_tls(server, mode):
    sink = prepare_sink(
        By(server, sslmode=mode, sslrootcert=server.authority),
        f"by_{mode.replace('-', '_')}",
        COLUMNS,
        max_wait="1 s",
    )
    stage(sink, ROWS, 1)
    assert sink.publish("q", 1, "a", {"rows": "1"})
    assert server.run(f"SELECT count(*) FROM by_{mode.replace('-', '_')}").strip() == "3"


def test_the_test_s_server_refuses_what_is_not_tls(server):
    with pytest.raises(EngineError, match=r"pg_hba|no encryption|rejects"):
        prepare_sink(By(server, sslmode="disable"), "plain", COLUMNS, max_wait="1 s")


@pytest.mark.parametrize("mode", ["verify-ca", "verify-full"])
def test_another_s_certificate_is_refused(server, mode, tmp_path):
    other = create_certificates(tmp_path).authority
    with pytest.raises(EngineError, match="certificate verify failed") as raised:
        prepare_sink(By(server, sslmode=mode, sslrootcert=other), "unverified", COLUMNS, max_wait="1 s")
    assert server.password not in str(raised.value)


def test_another_host_s_name_is_refused(server):
    by = By(server, sslmode="verify-full", sslrootcert=server.authority, hostaddr="127.0.0.1")
    by.url = by.url.replace("@127.0.0.1", "@other.example")
    with pytest.raises(EngineError, match="does not match host name"):
        prepare_sink(by, "elsewhere", COLUMNS, max_wait="1 s")

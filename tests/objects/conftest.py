import pytest

from tests.support.s3 import KEYS, make_bucket, s3_server, store_at


@pytest.fixture(scope="session")
def endpoint():
    with s3_server() as endpoint:
        yield endpoint


@pytest.fixture(autouse=True)
def keys(monkeypatch):
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def bucket(endpoint):
    return make_bucket(endpoint)


@pytest.fixture
def store(endpoint, bucket):
    return store_at(endpoint, bucket)

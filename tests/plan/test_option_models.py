"""Options of a system as a model: names, values, and all that is wrong at once."""

from __future__ import annotations

import pytest

from watersmeet.errors import SeveralErrors, SpecError
from watersmeet.spec.options.kafka_delivery import DeliveryOptions
from watersmeet.spec.options.lake import IcebergOptions
from watersmeet.spec.options.postgres import PostgresOptions, TableName
from watersmeet.spec.secrets import HIDDEN, OpaqueSecret

RIGHT = {"URL": "postgresql://db/shop", "table": 'shop."Order.s"', "Staging": " LOGGED ", "max_wait": "2 min"}


def test_names_and_choices_are_read_in_any_case():
    options = PostgresOptions.of(RIGHT)
    assert options.table == TableName("shop", "Order.s")
    assert (options.staging, options.max_wait, options.on_rejected) == ("logged", 120, "stop")


def test_a_secret_stays_one():
    options = PostgresOptions.of(RIGHT | {"password": OpaqueSecret("zq7hidden")})
    assert isinstance(options.password, OpaqueSecret)
    assert "zq7hidden" not in repr(options)


@pytest.mark.parametrize(("model", "name"), [(PostgresOptions, "staging"), (DeliveryOptions, "delivery")])
def test_a_wrong_value_that_is_secret_is_not_shown(model, name):
    with pytest.raises((SpecError, SeveralErrors)) as raised:
        model.of({name: OpaqueSecret("zq7hidden")})
    assert HIDDEN in str(raised.value)
    assert "zq7hidden" not in str(raised.value)


def test_all_problems_are_reported_at_once_by_the_names_as_written():
    wrong = {"Table": "a.b.c", "STAGING": "x", "max_wait": OpaqueSecret("zq7hidden"), "stagin": "1"}
    with pytest.raises(SeveralErrors) as raised:
        PostgresOptions.of(wrong)
    assert {(error.code, error.message) for error in raised.value.errors} == {
        ("missing-option", 'the sink needs the option "url"'),
        ("wrong-option", "the sink: option 'Table' is 'a.b.c'"),
        ("wrong-option", "the sink: option 'STAGING' is 'x'"),
        ("wrong-option", f"the sink: option 'max_wait' is '{HIDDEN}'"),
        ("unknown-option", 'the sink has no option "stagin"'),
    }
    hints = {error.message.rpartition(" ")[2]: error.hint for error in raised.value.errors}
    assert hints["'x'"] == "'unlogged' or 'logged'"
    assert hints['"url"'] == "'url' = 'postgresql://me@db:5432/shop'"
    assert 'did you mean "staging"' in hints['"stagin"']


def test_a_blank_option_is_missing():
    with pytest.raises(SpecError, match='needs the option "table"'):
        PostgresOptions.of({"url": "postgresql://db/x", "table": " "})


def test_options_of_a_catalog_are_its_own():
    assert IcebergOptions.of({"table": "shop.t", "catalog.type": "rest"}).table == "shop.t"
    with pytest.raises(SpecError, match=r'no option "catalog\."'):
        IcebergOptions.of({"table": "shop.t", "catalog.": "x"})


def test_other_options_of_a_topic_are_no_matter():
    options = DeliveryOptions.of({"topic": "t", "control.topic": " marks ", "kafka.acks": "all"})
    assert (options.control_topic, options.delivery) == ("marks", "exactly-once")

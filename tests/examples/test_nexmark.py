"""The generator of Nexmark's events keeps to its published rules."""

from __future__ import annotations

import numpy as np
import pyarrow.compute as pc
import pytest

from examples.arrivals import START_US
from examples.nexmark.generator import Nexmark

EVENTS, RATE = 50_000, 1_000


@pytest.fixture(scope="module")
def streams():
    return Nexmark(EVENTS, RATE, seed=5).streams()


def column(streams, name, of):
    return streams[name][0][of].to_numpy()


def at_ms(streams, name, of="dateTime"):
    return (streams[name][0][of].cast("int64").to_numpy() - START_US) / 1000


def test_one_in_fifty_is_a_person_and_three_are_auctions(streams):
    assert [streams[name][0].num_rows for name in ("person", "auction", "bid")] == [1_000, 3_000, 46_000]


def test_ids_rise_with_the_time(streams):
    for name, each in (("person", 50), ("auction", 50 / 3)):
        ids, at = column(streams, name, "id"), at_ms(streams, name)
        assert sorted(ids) == list(range(1000, 1000 + len(ids)))
        assert np.abs(at[np.argsort(ids)] - np.arange(len(ids)) * each).max() < 50


def test_events_are_shuffled_within_a_thousand(streams):
    rows, arrived = streams["bid"]
    behind = at_ms(streams, "bid") - (arrived - START_US) / 1000
    assert rows.num_rows == len(arrived)
    assert 500 < np.abs(behind).max() < 1_000
    assert (np.diff(arrived) >= 0).all()


def test_half_of_the_bids_are_for_the_hot_auction_and_three_quarters_by_the_hot_bidder(streams):
    auction, bidder, at = (
        column(streams, "bid", "auction"),
        column(streams, "bid", "bidder"),
        at_ms(streams, "bid"),
    )
    newest = (at // 50) * 3 + 2  # bids come behind the auctions of their fifty
    hot = 1000 + newest // 100 * 100
    assert 0.50 < (auction == hot).mean() < 0.52  # some of the others hit it, too
    assert (auction - 1000 >= np.maximum(newest - 100, 0) - 100).all()
    assert (auction - 1000 <= newest + 10).all()
    people = at // 50
    assert 0.75 <= (bidder == 1000 + people // 100 * 100 + 1).mean() < 0.77
    assert (bidder - 1000 <= people + 10).all()


def test_sellers_prices_and_times(streams):
    seller, at = column(streams, "auction", "seller"), at_ms(streams, "auction")
    assert 0.73 < (seller == 1000 + at // 50 // 100 * 100).mean() < 0.78
    price = column(streams, "bid", "price")
    assert 100 <= price.min() < 110
    assert 9e7 < price.max() <= 1e8
    assert 95_000 < np.median(price) < 105_000
    lasted = at_ms(streams, "auction", "expires") - at
    assert 0 < lasted.min() < 50
    assert 3_200 < lasted.max() <= 3_334  # less than the 4 s that the interval forms have
    assert 1_600 < lasted.mean() < 1_740
    assert set(pc.unique(streams["auction"][0]["category"]).to_pylist()) == {10, 11, 12, 13, 14}


def test_the_seed_says_all():
    again, other = Nexmark(1_000, seed=5).streams(), Nexmark(1_000, seed=6).streams()
    first = Nexmark(1_000, seed=5).streams()
    assert first["bid"][0].equals(again["bid"][0])
    assert not first["bid"][0].equals(other["bid"][0])

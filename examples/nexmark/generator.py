"""Nexmark's events by its published rules, made as whole columns and not event by event.

Of 50 events 1 is a new person, 3 are new auctions and 46 are bids, in this order. Event number n has the
time ``n / rate`` since the start, in whole ms. Ids rise by one from 1000. Half of the bids go to the *hot*
auction, the first of the newest hundred, the others to one of the last 100 auctions or of 10 that do not
exist yet; three quarters are by the hot bidder, the second of the newest hundred people, the others by one
of the last 1,000 or of 10 to come; so it is with sellers, of whom the hot one is the first of the hundred.
A price is 10^x with x even between 2 and 8. An auction is open for up to twice as long as it takes for 100
more to be opened. Events arrive in groups of 1,000, in a shuffled order within each.

Random numbers are this generator's own: it makes the same distributions as Beam's and Flink's, not the same
rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from examples.arrivals import START_US, Numbers, Streams, times

PEOPLE, AUCTIONS, BIDS = 1, 3, 46
"""Of so many events."""
ALL = PEOPLE + AUCTIONS + BIDS
FIRST_ID, FIRST_CATEGORY, CATEGORIES = 1000, 10, 5
HOT = 100
"""The first, or second, of so many is the hot one."""
IN_FLIGHT, ACTIVE_PEOPLE, LEAD = 100, 1000, 10
HOT_SELLERS, HOT_BIDDERS, HOT_AUCTIONS = 4, 4, 2
"""All but one in so many are of, by, for the hot one."""
PERSON_BYTES, AUCTION_BYTES, BID_BYTES = 200, 500, 100
GROUP, STEP = 1000, 953
"""How many events are shuffled, and by which multiplier."""
STATES = ["AZ", "CA", "ID", "OR", "WA", "WY"]
CITIES = [
    "Phoenix",
    "Los Angeles",
    "San Francisco",
    "Boise",
    "Portland",
    "Bend",
    "Redmond",
    "Seattle",
    "Kent",
    "Cheyenne",
]
FIRST_NAMES = ["Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter"]
LAST_NAMES = ["Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris"]
CHANNELS = ["Google", "Facebook", "Baidu", "Apple"]


@dataclass(frozen=True)
class Nexmark:
    """``events``: how many; ``rate``: how many of them a second of event time."""

    events: int
    rate: int = 1_000
    seed: int = 1

    def streams(self) -> Streams:
        random = np.random.default_rng(self.seed)
        emitted = np.arange(self.events, dtype=np.int64)
        number = emitted // GROUP * GROUP + emitted * STEP % GROUP
        place = number % ALL
        person, bid = place < PEOPLE, place >= PEOPLE + AUCTIONS
        auction = ~person & ~bid
        made = {"person": self._people, "auction": self._auctions, "bid": self._bids}
        kinds = {"person": person, "auction": auction, "bid": bid}
        return {
            name: (made[name](number[kinds[name]], random), self._at(emitted[kinds[name]])) for name in made
        }

    def _at(self, number: Numbers) -> Numbers:
        """The time of an event, in µs, of whole ms."""
        return START_US + number * 1000 // self.rate * 1000

    def _people(self, number: Numbers, random: np.random.Generator) -> pa.Table:
        count = len(number)
        first, last = (random.integers(0, len(names), count) for names in (FIRST_NAMES, LAST_NAMES))
        names = [f"{FIRST_NAMES[a]} {LAST_NAMES[b]}" for a, b in zip(first, last, strict=True)]
        mail = [_texts(random, mean, count) for mean in (7, 5)]
        cards = random.integers(0, 10_000, (count, 4))
        return pa.table(
            {
                "id": FIRST_ID + _last_person(number),
                "name": names,
                "emailAddress": [f"{name}@{host}.com" for name, host in zip(*mail, strict=True)],
                "creditCard": [" ".join(f"{part:04}" for part in card) for card in cards.tolist()],
                "city": _chosen(random, CITIES, count),
                "state": _chosen(random, STATES, count),
                "dateTime": times(self._at(number)),
                "extra": _extra(random, PERSON_BYTES - 60, count),
            }
        )

    def _auctions(self, number: Numbers, random: np.random.Generator) -> pa.Table:
        count, at = len(number), self._at(number)
        hot = random.integers(0, HOT_SELLERS, count) > 0
        seller = np.where(hot, _last_person(number) // HOT * HOT, _any_person(number, random))
        first_bid = _prices(random, count)
        horizon = (self._at(number + IN_FLIGHT * ALL // AUCTIONS) - at) // 1000
        open_ms = 1 + (random.random(count) * np.maximum(horizon * 2, 1)).astype(np.int64)
        return pa.table(
            {
                "id": FIRST_ID + _last_auction(number),
                "itemName": _texts(random, 10, count),
                "description": _texts(random, 50, count),
                "initialBid": first_bid,
                "reserve": first_bid + _prices(random, count),
                "dateTime": times(at),
                "expires": times(at + open_ms * 1000),
                "seller": FIRST_ID + seller,
                "category": FIRST_CATEGORY + random.integers(0, CATEGORIES, count),
                "extra": _extra(random, AUCTION_BYTES - 108, count),
            }
        )

    def _bids(self, number: Numbers, random: np.random.Generator) -> pa.Table:
        count, newest = len(number), _last_auction(number)
        hot = random.integers(0, HOT_AUCTIONS, count) > 0
        least = np.maximum(newest - IN_FLIGHT, 0)
        in_flight = least + (random.random(count) * (newest - least + 1 + LEAD)).astype(np.int64)
        hot_bidder = random.integers(0, HOT_BIDDERS, count) > 0
        bidder = np.where(hot_bidder, _last_person(number) // HOT * HOT + 1, _any_person(number, random))
        channel = _chosen(random, CHANNELS, count)
        return pa.table(
            {
                "auction": FIRST_ID + np.where(hot, newest // HOT * HOT, in_flight),
                "bidder": FIRST_ID + bidder,
                "price": _prices(random, count),
                "channel": channel,
                "dateTime": times(self._at(number)),
                "extra": _extra(random, BID_BYTES - 40, count),
                "d": np.ones(count, np.int32),
            }
        )


def _last_person(number: Numbers) -> Numbers:
    """The newest person when event ``number`` is made, itself included, from 0."""
    newest: Numbers = number // ALL * PEOPLE + np.minimum(number % ALL, PEOPLE - 1)
    return newest


def _last_auction(number: Numbers) -> Numbers:
    """Likewise; −1 before the first one."""
    place = number % ALL
    before = place < PEOPLE
    within = np.where(before, AUCTIONS - 1, np.minimum(place - PEOPLE, AUCTIONS - 1))
    newest: Numbers = (number // ALL - before) * AUCTIONS + within
    return newest


def _any_person(number: Numbers, random: np.random.Generator) -> Numbers:
    people = _last_person(number) + 1
    active = np.minimum(people, ACTIVE_PEOPLE)
    chosen: Numbers = people - active + (random.random(len(number)) * (active + LEAD)).astype(np.int64)
    return chosen


def _prices(random: np.random.Generator, count: int) -> Numbers:
    return np.rint(10 ** (random.random(count) * 6) * 100).astype(np.int64)


def _chosen(random: np.random.Generator, words: list[str], count: int) -> Any:
    return pa.DictionaryArray.from_arrays(
        pa.array(random.integers(0, len(words), count), pa.int32()), pa.array(words)
    ).dictionary_decode()


def _texts(random: np.random.Generator, mean: int, count: int) -> list[str]:
    texts: list[str] = _extra(random, mean, count).to_pylist()
    return texts


def _extra(random: np.random.Generator, mean: int, count: int) -> pa.Array:
    """Letters, a fifth more or less than ``mean`` of them."""
    lengths = random.integers(mean - mean // 5, mean + mean // 5 + 1, count)
    ends = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    letters = random.integers(97, 123, int(ends[-1]), dtype=np.uint8)
    return pa.StringArray.from_buffers(count, pa.py_buffer(ends), pa.py_buffer(letters))


def streams(events: int, seed: int) -> Streams:
    return Nexmark(events, seed=seed).streams()

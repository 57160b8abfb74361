"""Each failure with the readings of its last five minutes, by pandas."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import pandas as pd
import pyarrow as pa

from examples.arrivals import Tick
from examples.running import Rows


def before(ticks: Sequence[Tick]) -> Mapping[str, Rows]:
    """No row is late: the data are out of order by less than the lag."""
    failures, readings = (
        pa.concat_tables([tick[name] for tick in ticks]).to_pandas() for name in ("failures", "readings")
    )
    pairs = failures.merge(readings, on="machine", suffixes=("", "_read"))
    near = pairs[(pairs.at_read <= pairs["at"]) & (pairs.at_read >= pairs["at"] - pd.Timedelta(minutes=5))]
    found: Rows = Counter(
        (row.failure, row.machine, row.at, row.at_read, row.celsius) for row in near.itertuples()
    )
    for row in failures[~failures.failure.isin(near.failure)].itertuples():
        found[row.failure, row.machine, row.at, None, None] += 1
    return {"before": found}

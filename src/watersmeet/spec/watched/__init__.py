"""How a run is watched, as its settings say it."""

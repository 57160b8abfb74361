"""`watersmeet state …` and `watersmeet stop`: a job's state, as its operator looks after it."""

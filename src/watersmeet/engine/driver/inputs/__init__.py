"""The inputs of a job, tick by tick: their watermarks, who is silent, who is ahead of others."""

"""The batch answer of a job's queries against what the job has put out: which rows differ, and why."""

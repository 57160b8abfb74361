"""The plan of a job: everything that an engine needs, and nothing that it has to decide."""

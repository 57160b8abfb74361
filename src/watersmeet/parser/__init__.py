"""Parse SQL text into a description of a job."""

"""`watersmeet diff`: a job's output against the batch answer of its queries."""

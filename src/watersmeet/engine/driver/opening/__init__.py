"""State is opened: does it belong to the job, is it whole, and what becomes of it where queries changed."""

"""Groups over all rows: what is kept of them adds up, and a group that changes is put out anew."""

"""Rules about the order of inner joins, and how much state an order makes."""

"""TPC-H's query 3 over tables that change."""

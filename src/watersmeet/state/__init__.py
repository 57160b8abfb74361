"""What is remembered between ticks: immutable sorted runs, match marks, manifests, their stores."""

"""What is asked: frozen descriptions of sources, inputs, joins and outputs. No planning, no execution."""

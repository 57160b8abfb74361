"""Surfaces: SQL text and case files become `watersmeet.spec` objects. No planning, no execution."""

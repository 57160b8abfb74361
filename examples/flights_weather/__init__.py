"""Flights out of New York with the weather at their airport, and quick turnarounds: the data of
``watersmeet demo``.
"""

"""Examples that are real questions: data, a job, and an answer that is computed without watersmeet.

``python -m examples NAME`` runs one on Spark and says whether it is right, and how fast it was; the pages are
in ``docs/users/examples``.
"""

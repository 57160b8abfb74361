"""Running a plan: ``step`` is the pure tick, ``local`` runs it in this process, ``spark`` on Spark."""

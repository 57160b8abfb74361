"""SQL types as values, the one grammar that reads them, and the rules by which Spark makes one of several.

Pure: nothing here knows a query, a plan or Spark.
"""

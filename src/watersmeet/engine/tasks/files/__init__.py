"""Files that tasks, or the driver, read by Arrow, where that is to give what Spark's readers give."""

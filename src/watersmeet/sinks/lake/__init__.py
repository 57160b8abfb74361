"""Tables of Delta and Iceberg: tasks write Parquet files, one commit of the driver takes them in."""

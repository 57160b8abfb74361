"""What the driver and the tasks of a tick say to each other: shapes, work, reports. Data only."""

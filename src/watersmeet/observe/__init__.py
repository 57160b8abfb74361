"""What people see of a running job: progress, rows, and the account that adds up."""

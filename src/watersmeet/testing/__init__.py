"""The public test kit: what users and our own tests take to try a join without a cluster."""

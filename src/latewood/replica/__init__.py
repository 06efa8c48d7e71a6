"""Replication: partitioned logs on one Raft log."""

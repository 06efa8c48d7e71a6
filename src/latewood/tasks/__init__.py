"""What jobs do to files and objects: values that travel, and functions that act on them, here or on another machine.

A task needs a disk, an archive and keys, which it finds where it runs.  It never sees the catalog: planning and
committing stay with whoever holds the job's lease.   Why: docs/adr/0023-jobs-on-spark.md
"""

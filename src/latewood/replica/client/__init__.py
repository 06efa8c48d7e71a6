"""The client of a cluster: what a program imports to append to partitions and to read them."""

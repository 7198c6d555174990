"""Measurements that print ratios: run by `make bench`, never by the tests."""

"""Outcomes: what becomes of a record, and the messages that are written for it."""

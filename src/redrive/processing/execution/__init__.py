"""Execution: the threads and the event loop that run handlers."""

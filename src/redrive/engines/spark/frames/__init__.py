"""Frames: pipelines of ordinary DataFrame code, with the same retries as handlers of records."""

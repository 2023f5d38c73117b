"""Engines: which ranges of records run, and where and when. Everything else is shared."""

"""The fixtures of the engine suites, for their long versions."""

from engine_fixtures import engine, start, world

__all__ = ["engine", "start", "world"]

"""The fixtures of the engine suites."""

from engine_fixtures import engine, start, world

__all__ = ["engine", "start", "world"]

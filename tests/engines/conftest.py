"""The fixtures of the engine suites."""

from engine_fixtures import engine, spark_session, start, world

__all__ = ["engine", "spark_session", "start", "world"]

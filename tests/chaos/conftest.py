"""The fixtures of the engine suites, for their long versions."""

from engine_fixtures import engine, spark_session, start, world

__all__ = ["engine", "spark_session", "start", "world"]

"""Intake: where records that were read go."""

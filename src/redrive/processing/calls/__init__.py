"""Calls: how the functions of users are called, and what they can ask for."""

"""Order: which record may run next, and which one waits."""

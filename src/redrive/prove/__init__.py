"""The table of what is duplicated at each failure point, reproduced with real kills."""

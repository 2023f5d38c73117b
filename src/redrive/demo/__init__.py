"""The story that `redrive demo` tells: a shop, and what happens in it."""

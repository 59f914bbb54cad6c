"""Compare maps: of methods, atlases, models or authors, or of one map over its seeds or halves."""

"""Every method measured against models whose heads are known, and against what can be said where no truth is known."""

"""The public calls, one file per method: load what is asked for, compute, check, stamp, save."""

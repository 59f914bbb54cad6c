"""Where independent pieces of work run: in several processes of this machine, or on a Ray cluster. `pool.Pool.run` is the seam."""

"""Where independent tasks run: this process, processes of this machine, or a Ray cluster; see `pool.Pool`."""

"""Set-up shared by all tests, one file for each kind."""

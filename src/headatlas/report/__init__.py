"""What people read: descriptions so far; the page to come."""

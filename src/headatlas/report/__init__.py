"""What people read: the page of an atlas, and sentences about heads from a language model."""

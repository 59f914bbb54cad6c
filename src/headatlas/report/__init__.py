"""What people read: the page of an atlas, and sentences about heads from a language model."""

PAGE = "report.html"  # in the folder of an atlas

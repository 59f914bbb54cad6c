"""The page of an atlas, and descriptions of heads from a language model."""

PAGE = "report.html"  # in the folder of an atlas

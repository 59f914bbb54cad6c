"""Maps as the files that other tools read: cache compressors, viewers, tables.

What can be chosen is listed here, without slow imports; `export.export` writes.
"""

FOLDERS = ("duo-attention", "headvis")  # formats that are folders; the others are files
FORMATS = ("duo-attention", "headkv", "headvis", "csv", "json", "parquet")
TABLES = ("csv", "json", "parquet")  # long tables, whose files must end so
ONE_MAP = ("duo-attention", "headkv")  # formats that hold one map; the others hold many

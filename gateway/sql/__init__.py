"""The databases of the tool `execute_sql`: how each runs one statement, and what it thinks of one beforehand."""

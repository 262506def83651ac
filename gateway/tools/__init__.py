"""Tools: which there are, who may use them, and how a call is judged and run."""

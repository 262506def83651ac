"""The passthrough lane: one request spliced to one upstream connection; what it sends, answers, counts, ends as."""

"""Hidden turns: the work of a model behind an answer that its client sends again, and the marks of taint."""

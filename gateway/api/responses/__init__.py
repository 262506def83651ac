"""The pages of the Responses API in the context lane: responses, their streams, conversations, compaction."""

"""The pages of approvals: the inbox, one call that waits, and several that are decided at once."""

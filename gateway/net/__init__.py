"""Host names and addresses: parsing, name resolution, and which addresses are public."""

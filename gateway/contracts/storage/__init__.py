"""The contract of a store, and the records that it keeps."""

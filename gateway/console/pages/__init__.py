"""The pages of the console, one file for each subject."""

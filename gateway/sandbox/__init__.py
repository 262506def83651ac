"""Confines what tools do on this machine: files beneath a folder, commands in a sandbox. Standard library only."""

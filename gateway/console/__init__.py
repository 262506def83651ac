"""The console: pages for the people who run agents and decide on their calls."""

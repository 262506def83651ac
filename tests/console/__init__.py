"""The browser console: its pages, and what a real Chromium makes of them."""

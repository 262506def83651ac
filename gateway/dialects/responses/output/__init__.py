"""The output of a response: its items while a run makes them, and the Response object that holds them."""

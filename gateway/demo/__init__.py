"""The demo model: a scripted, deterministic upstream for trying the gateway without a key and without a network.

It stands for another operator's server, so it imports nothing of the gateway and nothing of the gateway imports its
inside: `gateway.demo.app.start_demo` is the way in. A prompt's first words choose the behaviour; they are the table
`WORDS` in words.py. Without them a prompt may still call a function that the client brings: functions.py.
`python -m gateway.demo --words` prints both as Markdown.
"""

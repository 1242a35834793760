"""The demo: a scenario played in the lab, watched and judged from the outside.

It stands on the lab and on nothing that the services say about themselves: what it asserts comes from the API
server, the provider and the stream.
"""

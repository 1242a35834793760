"""A small GPU cloud that charges by the hour, for the lab and the tests of the bridge.

It behaves as most real ones: names are not unique, there is no idempotency key, provisioning is asynchronous and lists
come in pages. Its bill and its audit of every instance ever are what the bridge is judged by, so nothing here may know
the bridge.
"""

"""The evictor brings spilled pods home, a few at a time, through the Eviction API.

It promises: no eviction without a booked place at home, none past a budget or below an owner's floor, none without
its intent on record. It refuses to act on what it does not know: without the bus, without synced caches, for a pod
that depends on a rule it does not model.
"""

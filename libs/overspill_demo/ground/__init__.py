"""What the story needs of a cluster that is not the lab's own: made before it, taken away after it.

On such a cluster the lab brings nodes and services, and this package the rest: the namespace of the leases, the kinds
of Kueue where they are missing, and Overspill's admission policies.
"""

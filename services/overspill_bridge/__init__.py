"""The bridge: a virtual node whose pods run as instances at external providers.

It promises at most one living instance per pod, none for a pod that is gone, honest status, and that nothing foreign is
touched. It refuses to act on incomplete knowledge, and it keeps no state of its own: what it knows it reads from the
API server and from the providers.
"""

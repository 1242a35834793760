"""The lab's kubelets: one process that plays the kubelet of every home node, as a client of any API server.

It registers the nodes of a file, renews their leases, and lets the pods bound to them live and end. No container runs:
how long a pod runs and how it exits is what its annotations say (`life`).
"""

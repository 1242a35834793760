"""The lab's kube-controller-manager: the controllers that Overspill's world leans on, as one client of any API server.

Deployments, ReplicaSets, Jobs, PodDisruptionBudgets, garbage collection, node lifecycle with taint-based eviction, pods
of lost nodes. The modules called `*_rules` are pure; the others carry out what they say.
"""

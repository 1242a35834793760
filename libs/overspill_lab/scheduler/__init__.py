"""The lab's kube-scheduler: its rules, weights and words, as a client of any API server.

Left out, and refused by name when a pod asks for it: inter-pod affinity, topology spread, volumes that bind to nodes,
resource claims, gangs. It does not preempt. Everything but `service` is pure.
"""

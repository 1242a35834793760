"""The lab's kube-scheduler: its rules, weights and words, as a client of any API server.

Left out, and refused by name when a pod asks for it: inter-pod affinity, volumes that bind to nodes, resource claims,
and of topology spread whatever differs from the defaults of its policies. Two of the original's scores that no pod asks
for are left out as well: image locality, and the soft spreading of a ReplicaSet's pods over hosts and zones. Everything
but `service`, `verdicts` and `victims` is pure.
"""

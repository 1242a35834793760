"""The lab's API server: as much of kube-apiserver as Overspill, its controllers and `kubectl` rely on.

Everything is kept in memory and changed on one event loop, so a write is atomic because nothing awaits inside it.
What the lab does not do it refuses with a Status; it never accepts in silence. The real kube-apiserver is the judge:
the contract suite runs the same tests against both. Nothing here knows scheduling, controllers or kubelets: those are
clients that speak HTTP and could serve a real API server as well.
"""

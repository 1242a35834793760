"""Pure arithmetic of room: what a pod asks, what a node has left, whether the one fits the other.

Shared by all policies. It knows neither clocks nor networks: nodes, pods and `now` come in, numbers with their reasons
go out, and what it cannot judge it calls unknown.
"""

"""Samples home capacity: counted from the cluster, and asked of Prometheus by the operator's query.

Promises: a number is a number, everything else is unknown with its cause. It writes nothing in the cluster.
"""

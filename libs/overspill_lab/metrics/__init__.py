"""The lab's metrics: the series that Overspill's sampler and dashboards look for, and as much of Prometheus as it asks.

A real Prometheus can scrape `/metrics` and answer the same queries with the same numbers. The query API here answers
exactly the queries of `query.QUERIES` and refuses all others.
"""

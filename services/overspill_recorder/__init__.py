"""The recorder keeps every event of the stream in a SQLite ledger that `overspill events` and `overspill explain` read.

The ledger is a read model: the stream is the record, and a lost or damaged file is built again from it. The recorder
decides nothing and writes nothing but its file.
"""

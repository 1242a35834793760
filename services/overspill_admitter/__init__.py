"""admitter"""

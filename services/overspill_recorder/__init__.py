"""recorder"""

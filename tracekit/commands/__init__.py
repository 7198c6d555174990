"""One module a verb, each no longer than a screen: parse, call one function, print.

What is computed is computed elsewhere; how a table looks is known to `tracekit.terminal`.
"""

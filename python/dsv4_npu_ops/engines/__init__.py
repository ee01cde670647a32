"""Plug-ins that let engines run on this package without a change to their code (docs/engines.md).

An engine is imported only by its own plug-in, which the engine itself loads by an entry point.
"""

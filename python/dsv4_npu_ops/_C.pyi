version: str
"""Of the package, with the torch that it was built for, as in 0.2.0+torch2.10."""
torch_version: str
"""Of the torch whose headers it was compiled with, as in 2.10.0."""
compiler: str
"""Name and version."""

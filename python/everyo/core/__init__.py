"""The core of everyo: dtypes, devices, autograd."""

"""Settings of all tests: hypothesis tries the same examples on every run, however slow the build is, and keeps no files."""

from hypothesis import settings

settings.register_profile("everyo", deadline=None, derandomize=True, database=None)
settings.load_profile("everyo")

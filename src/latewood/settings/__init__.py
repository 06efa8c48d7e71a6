"""Settings of a store: `latewood.toml` and the environment, into the options classes of the layers below.

Empty, so that `units` loads without the catalog.   How to use it: docs/guide/settings.md
"""

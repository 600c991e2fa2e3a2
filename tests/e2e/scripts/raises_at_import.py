"""A new version that cannot even be imported."""

raise RuntimeError("the new version is broken: raised at import")

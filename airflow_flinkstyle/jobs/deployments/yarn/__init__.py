"""A driver as one application of YARN: how it is handed over (``submitting``), and whom one asks about it.

``deployment`` is what callers use. ``managers`` asks the ResourceManagers over HTTP, ``login`` says who asks
where they want Kerberos, and ``settings`` reads where they are in Hadoop's own files.
"""

"""Control of jobs, without Airflow: how one is started, kept up, asked, stopped, moved, and stored.

A subject is one file (``status``: whether a job runs; ``relaunch``: how a dead driver is followed by the
next), and a room if it takes several: ``start``, ``stopped``, ``cutover``, ``upgrade``, ``migration``,
``adoption``.
"""
